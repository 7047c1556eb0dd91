// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_bytes.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

namespace qwen38::parallel {
namespace {

std::int64_t product(std::span<std::int64_t const> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// How many of a tensor's `units` equal units of `total` rows or columns the ascending ranges
/// touch: a unit is one row, two columns in a byte, a group, a block, or everything.
std::int64_t touched(std::span<index_range const> ranges, std::int64_t total, std::int64_t units) {
  std::int64_t const unit = (total + units - 1) / units;
  std::int64_t count = 0;
  std::int64_t next = 0;  // first unit that is not counted yet
  for (index_range const& range : ranges) {
    if (range.count == 0) continue;
    std::int64_t const first = std::max(next, range.first / unit);
    next = std::max(next, (range.first + range.count - 1) / unit + 1);
    count += std::max<std::int64_t>(0, next - first);
  }
  return count;
}

}  // namespace

checkpoint::group_bytes bytes_of_rank(checkpoint::inventory const& weights,
                                      checkpoint::model_config const& config,
                                      shard_plan const& plan, int rank) {
  checkpoint::group_bytes bytes{};
  auto const entries = checkpoint::list_model(config, weights.prefix);
  for (checkpoint::used_tensor const& tensor : weights.used) {
    checkpoint::model_entry const& entry = entries[tensor.entry];
    tensor_slice const slice = plan.slice(rank, entry.name, entry.shape);
    auto const split = [](std::vector<std::int64_t> const& shape) {
      std::span<std::int64_t const> const extents(shape);
      return std::pair(extents.empty() ? std::int64_t{1} : extents.front(),
                       extents.empty() ? std::int64_t{1} : product(extents.subspan(1)));
    };
    auto const [n, k] = split(entry.shape);
    auto const [rows, columns] = split(tensor.shape);
    std::int64_t const held =
        touched(slice.rows, n, rows) * touched({&slice.columns, 1}, k, columns);
    bytes[static_cast<std::size_t>(tensor.group)] += tensor.bytes /
                                                     static_cast<std::uint64_t>(rows * columns) *
                                                     static_cast<std::uint64_t>(held);
  }
  return bytes;
}

}  // namespace qwen38::parallel

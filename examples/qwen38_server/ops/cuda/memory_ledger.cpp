// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/memory_ledger.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace qwen38::ops::cuda {

std::size_t memory_ledger::take(std::size_t bytes, std::string const& use) {
  std::size_t const rounded =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  std::size_t offset = end_;
  auto const fits =
      std::ranges::find_if(holes_, [rounded](auto const& hole) { return hole.second >= rounded; });
  if (fits == holes_.end()) {
    end_ += rounded;
    extent_ = std::max(extent_, end_);
  } else {
    offset = fits->first;
    std::size_t const rest = fits->second - rounded;
    holes_.erase(fits);
    if (rest > 0) holes_.emplace(offset + rounded, rest);
  }
  places_.emplace(offset, place{rounded, use});
  by_use_[use] += rounded;
  taken_ += rounded;
  return offset;
}

void memory_ledger::give_back(std::size_t offset) noexcept {
  auto const found = places_.find(offset);
  std::size_t first = offset;
  std::size_t bytes = found->second.bytes;
  auto const use = by_use_.find(found->second.use);
  use->second -= bytes;
  if (use->second == 0) by_use_.erase(use);
  taken_ -= bytes;
  places_.erase(found);

  auto const after = holes_.find(first + bytes);
  if (after != holes_.end()) {
    bytes += after->second;
    holes_.erase(after);
  }
  auto before = holes_.lower_bound(first);
  if (before != holes_.begin() && std::prev(before)->first + std::prev(before)->second == first) {
    --before;
    first = before->first;
    bytes += before->second;
    holes_.erase(before);
  }
  if (first + bytes == end_) {
    end_ = first;
  } else {
    holes_.emplace(first, bytes);
  }
}

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "parallel/linear_slice.hpp"

#include <cstring>
#include <span>

#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

/// The same columns of every row of a row-major table [n, k], one row after the other; columns must
/// begin and end on whole bytes.
std::unique_ptr<std::byte[]> copy_columns(std::span<std::byte const> table, std::int64_t n,
                                          std::int64_t k, index_range columns) {
  std::int64_t const row_bytes = std::ssize(table) / n;
  std::int64_t const first = row_bytes * columns.first / k;
  std::int64_t const count = row_bytes * columns.count / k;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(n * count));
  for (std::int64_t row = 0; row < n; ++row) {
    std::memcpy(copy.get() + row * count, table.data() + row * row_bytes + first,
                static_cast<std::size_t>(count));
  }
  return copy;
}

}  // namespace

linear_slice slice_linear(checkpoint::linear_view const& linear, tensor_slice const& slice) {
  linear_slice result;
  result.k = slice.columns.count;
  qpn::weight_part whole = checkpoint::to_part(linear);
  if (slice.columns != index_range{0, linear.k}) {
    constexpr std::int64_t group = 16;
    if (linear.format == qpn::format_id::nvfp4 &&
        (slice.columns.first % group != 0 || slice.columns.count % group != 0)) {
      throw error(error_kind::internal,
                  "linear " + linear.module + ": columns are cut inside an NVFP4 group of 16");
    }
    result.own_codes = copy_columns(linear.codes, linear.n, linear.k, slice.columns);
    whole.codes = result.own_codes.get();
    if (!linear.block_scales.empty()) {
      result.own_block_scales =
          copy_columns(linear.block_scales, linear.n, linear.k, slice.columns);
      whole.block_scales = result.own_block_scales.get();
    }
  }
  auto const row_of = [&](void const* table, std::size_t whole_bytes, std::int64_t row) {
    std::int64_t const row_bytes =
        static_cast<std::int64_t>(whole_bytes) / linear.n * slice.columns.count / linear.k;
    return table == nullptr ? nullptr : static_cast<std::byte const*>(table) + row * row_bytes;
  };
  for (index_range const& rows : slice.rows) {
    qpn::weight_part part = whole;
    part.n = rows.count;
    part.codes = row_of(whole.codes, linear.codes.size(), rows.first);
    part.block_scales = row_of(whole.block_scales, linear.block_scales.size(), rows.first);
    if (whole.channel_scales != nullptr) part.channel_scales = whole.channel_scales + rows.first;
    result.parts.push_back(part);
  }
  return result;
}

}  // namespace qwen38::parallel

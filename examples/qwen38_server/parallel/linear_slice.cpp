// SPDX-License-Identifier: Apache-2.0
#include "parallel/linear_slice.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

using checkpoint::scale_blocks_in;

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

/// The grid's columns that belong to these columns of the linear.
std::vector<float> cut_scale_blocks(checkpoint::linear_view const& linear, index_range columns) {
  if (columns.first % qpn::scale_block != 0) {
    throw error(error_kind::unsupported,
                "linear " + linear.module + ": a rank's columns begin at " +
                    std::to_string(columns.first) +
                    ", inside a 128x128 block of FP8 scales: a multiple of 128 is expected");
  }
  std::int64_t const stored = scale_blocks_in(linear.k);
  std::int64_t const first = columns.first / qpn::scale_block;
  std::vector<float> cut;
  for (std::int64_t line = 0; line < scale_blocks_in(linear.n); ++line) {
    auto const begin = linear.scale_blocks.begin() + line * stored + first;
    cut.insert(cut.end(), begin, begin + scale_blocks_in(columns.count));
  }
  return cut;
}

/// Rows of the linear in ranges that share a line of scale blocks from their first row on.
std::vector<index_range> at_block_borders(checkpoint::linear_view const& linear, index_range rows) {
  std::int64_t const inside = rows.first % qpn::scale_block;
  std::int64_t const head = std::min(qpn::scale_block - inside, rows.count);
  if (linear.scale_blocks.empty() || inside == 0 || head == rows.count) return {rows};
  return {{rows.first, head}, {rows.first + head, rows.count - head}};
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
    if (!linear.scale_blocks.empty()) {
      result.own_scale_blocks = cut_scale_blocks(linear, slice.columns);
      whole.scale_blocks = result.own_scale_blocks.data();
    }
  }
  auto const row_of = [&](void const* table, std::size_t whole_bytes, std::int64_t row) {
    std::int64_t const row_bytes =
        static_cast<std::int64_t>(whole_bytes) / linear.n * slice.columns.count / linear.k;
    return table == nullptr ? nullptr : static_cast<std::byte const*>(table) + row * row_bytes;
  };
  for (index_range const& wanted : slice.rows) {
    for (index_range const& rows : at_block_borders(linear, wanted)) {
      qpn::weight_part part = whole;
      part.n = rows.count;
      part.codes = row_of(whole.codes, linear.codes.size(), rows.first);
      part.block_scales = row_of(whole.block_scales, linear.block_scales.size(), rows.first);
      if (whole.channel_scales != nullptr) part.channel_scales = whole.channel_scales + rows.first;
      if (whole.scale_blocks != nullptr) {
        part.scale_blocks = whole.scale_blocks +
                            rows.first / qpn::scale_block * scale_blocks_in(slice.columns.count);
      }
      result.parts.push_back(part);
    }
  }
  return result;
}

}  // namespace qwen38::parallel

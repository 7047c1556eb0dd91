// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_linear.hpp"

#include <new>
#include <qpn/prepack.hpp>
#include <string>
#include <vector>

#include "checkpoint/message_text.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

constexpr std::align_val_t alignment{64};

void require_fusable(std::span<linear_view const> linears) {
  if (linears.empty())
    throw error(error_kind::invalid_argument, "packing needs at least one linear");
  linear_view const& first = linears.front();
  for (linear_view const& linear : linears) {
    std::string const pair =
        "linears " + in_quotes(first.module) + " and " + in_quotes(linear.module);
    if (linear.cls != first.cls) {
      throw error(error_kind::unsupported, pair + " are stored as " +
                                               std::string(to_string(first.cls)) + " and " +
                                               std::string(to_string(linear.cls)) +
                                               ", so they cannot be packed as one matrix");
    }
    if (linear.k != first.k) {
      throw error(error_kind::invalid_argument,
                  pair + " have " + std::to_string(first.k) + " and " + std::to_string(linear.k) +
                      " inputs, so they cannot be packed as one matrix");
    }
    if (linear.codes.empty()) {
      throw error(error_kind::invalid_argument, "linear " + in_quotes(linear.module) +
                                                    " has no bytes: only its header was opened");
    }
  }
}

// A row of the fused matrix, as a place in the checkpoint.
[[noreturn]] void fail(std::span<linear_view const> linears, qpn::status const& status) {
  std::int64_t row = status.row;
  std::size_t part = 0;
  while (part + 1 < linears.size() && row >= linears[part].n) row -= linears[part++].n;
  std::string what = "linear " + in_quotes(linears[part].module) + ": " + status.what;
  if (status.row >= 0) what += ", row " + std::to_string(row);
  if (status.column >= 0) what += ", column " + std::to_string(status.column);
  throw error(error_kind::corrupt_data, what);
}

}  // namespace

void packed_matrix::aligned_delete::operator()(std::byte* memory) const noexcept {
  ::operator delete[](memory, alignment);
}

packed_matrix pack(std::span<linear_view const> linears) {
  require_fusable(linears);
  linear_view const& first = linears.front();
  std::vector<qpn::weight_part> parts;
  std::int64_t n = 0;
  qpn::scale_mode scales = first.scales;
  for (linear_view const& linear : linears) {
    bool const splits_a_tile = n % qpn::tile_n != 0;
    if (splits_a_tile && scales == qpn::scale_mode::tensor) scales = qpn::scale_mode::channel;
    parts.push_back(to_part(linear));
    n += linear.n;
  }
  packed_matrix matrix;
  qpn::packed_layout& layout = matrix.weight_.layout;
  qpn::status const made =
      qpn::make_packed_layout(first.format, scales, n, first.k, first.dense_type, layout);
  if (!made.ok()) fail(linears, made);
  auto* const memory = static_cast<std::byte*>(::operator new[](matrix.bytes(), alignment));
  matrix.memory_.reset(memory);
  matrix.weight_.data = memory;
  qpn::status const packed = qpn::prepack(layout, parts.data(), parts.size(), memory);
  if (!packed.ok()) fail(linears, packed);
  return matrix;
}

}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <qpn/dtype.hpp>
#include <span>

#include "ops/ranked_id.hpp"
#include "ops/tensor_limits.hpp"

namespace qwen38::ops {

/// What a tensor's rows are for. The CPU backend holds both kinds in fp32.
enum class row_kind : std::uint8_t {
  stream,      ///< fp32: the residual stream, and what products give
  activation,  ///< enters a product; on a GPU fp16, stored with saturation
};

/// A row-major matrix in the backend's memory; not owning. Row r starts `r * stride` elements after
/// `data`.
struct tensor {
  void* data = nullptr;
  qpn::dtype type = qpn::dtype::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  /// The elements lie as qpn/x_fragments.hpp says, not in rows, and `stride` is not used: see
  /// backend::input_rows().
  bool fragments = false;

  [[nodiscard]] tensor slice_rows(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows && !fragments);
    return {at(first, 0), type, count, cols, stride};
  }
  [[nodiscard]] tensor slice_cols(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= cols && !fragments);
    return {at(0, first), type, rows, count, stride};
  }

 private:
  [[nodiscard]] void* at(std::int64_t row, std::int64_t col) const {
    return static_cast<std::byte*>(data) + (row * stride + col) * (qpn::bits(type) / 8);
  }
};

/// Chosen ids in the backend's memory.
using token_list = std::span<ranked_id>;

}  // namespace qwen38::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <qpn/dtype.hpp>
#include <span>

namespace qwen38::ops {

inline constexpr std::int64_t kv_page_tokens = 64;  ///< slots of a page of the KV cache

/// A row-major matrix in the backend's memory; not owning. Row r starts `r * stride` elements after
/// `data`.
struct tensor {
  void* data = nullptr;
  qpn::dtype type = qpn::dtype::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  [[nodiscard]] tensor slice_rows(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows);
    return {at(first, 0), type, count, cols, stride};
  }
  [[nodiscard]] tensor slice_cols(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= cols);
    return {at(0, first), type, rows, count, stride};
  }

 private:
  [[nodiscard]] void* at(std::int64_t row, std::int64_t col) const {
    return static_cast<std::byte*>(data) + (row * stride + col) * (qpn::bits(type) / 8);
  }
};

/// Consecutive rows of one sequence inside a pass: rows first_row .. first_row + rows - 1 of the
/// tensors are the tokens at absolute positions position .. position + rows - 1 of the lane.
struct row_span {
  int lane = 0;
  std::int64_t position = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  bool tentative = false;  ///< recurrent state must survive unchanged; a record is kept instead
  /// Where the sequence's keys and values lie: slot s in page pages[s / kv_page_tokens]. Not needed
  /// where no keys and values are.
  std::span<std::int32_t const> pages = {};
};

}  // namespace qwen38::ops

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/row_move.hpp"
#include "ops/token_choice.hpp"

namespace qwen38::ops::cuda {

/// A row_span as kernels read it; its pages are pass_view::pages[first_page ...].
struct span_entry {
  std::int32_t lane = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t tentative = 0;
  std::int64_t position = 0;
  std::int64_t first_page = 0;
  std::int32_t first_seen = 0;  ///< of pass_view::seen
  std::int32_t seen = 0;
};

/// What a pass has in device memory, at addresses that stay the same from pass to pass.
struct pass_view {
  std::int32_t const* ids = nullptr;        ///< [rows]
  span_entry const* spans = nullptr;        ///< [span_count]
  std::int32_t const* row_spans = nullptr;  ///< [rows] index of the row's span
  std::int32_t const* pages = nullptr;
  row_move const* moves[row_move_lists] = {};
  row_choice const* choices = nullptr;  ///< [rows]
  token_count const* seen = nullptr;
  std::int32_t span_count = 0;
  std::int32_t slot_offset = 0;
};

}  // namespace qwen38::ops::cuda

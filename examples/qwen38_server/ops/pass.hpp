// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ops/row_move.hpp"

namespace qwen38::ops {

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

/// What the operations of one pass work on. The spans lie one after another, from row 0, and cover
/// all rows of the pass; a lane has at most one.
struct pass_rows {
  std::span<row_span const> spans = {};
  std::span<std::int32_t const> ids = {};  ///< of all rows, or none where nothing is embedded
  std::array<std::span<row_move const>, row_move_lists> moves = {};
  /// The row at position p has its keys and values in slot p + slot_offset.
  std::int64_t slot_offset = 0;
};

/// The most that a pass will hold.
struct pass_limits {
  std::int64_t rows = 0;
  std::int64_t spans = 0;
  std::int64_t pages = 0;  ///< of one span
  std::int64_t moves = 0;  ///< of one list
};

/// Holds the rows of a pass for the operations that take it, at one place in the backend's memory.
class pass {
 public:
  virtual ~pass() = default;
};

}  // namespace qwen38::ops

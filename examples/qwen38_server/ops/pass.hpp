// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/row_move.hpp"
#include "ops/token_choice.hpp"

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
  /// For choices with penalties: each id of the sequence before the span's second row, once. The
  /// rows' ids behind the first count in addition for the rows that follow them.
  std::span<token_count const> seen = {};
};

/// Where a pass has `id_in_place(i)` for an id, it is that of token i of the list that embed()
/// gets: one that earlier operations choose.
[[nodiscard]] constexpr std::int32_t id_in_place(std::int64_t place) noexcept {
  return ~static_cast<std::int32_t>(place);
}

/// Sizes that a pass is filled up to, so that work recorded for them can be done again for other
/// rows: none may be larger. The rows added belong to no lane: they write keys and values to a page
/// of their own, change no state, and what they give is meaningless.
struct pass_size {
  std::int64_t rows = 0;
  std::int64_t spans = 0;
  std::int64_t longest_span = 0;  ///< rows
  std::int64_t slots = 0;         ///< of any sequence
  std::int32_t page = 0;          ///< of the rows added
};

/// What the operations of one pass work on. The spans lie one after another, from row 0, and cover
/// all rows of the pass, but for those that fill it up; a lane has at most one.
struct pass_rows {
  std::span<row_span const> spans = {};
  /// Of all rows, those that fill up included, or none where nothing is embedded.
  std::span<std::int32_t const> ids = {};
  std::array<std::span<row_move const>, row_move_lists> moves = {};
  /// The row at position p has its keys and values in slot p + slot_offset.
  std::int64_t slot_offset = 0;
  /// How the tokens of rows are chosen: of all of them, those that fill up included, or of none.
  std::span<row_choice const> choices = {};
  std::optional<pass_size> size = {};  ///< none: as many rows and spans as there are
};

/// The most that a pass will hold.
struct pass_limits {
  std::int64_t rows = 0;
  std::int64_t spans = 0;
  std::int64_t pages = 0;  ///< of one span
  std::int64_t moves = 0;  ///< of one list
  std::int64_t choices = 0;
  std::int64_t seen = 0;  ///< of all spans
};

/// Holds the rows of a pass for the operations that take it, at one place in the backend's memory.
class pass {
 public:
  virtual ~pass() = default;
};

struct pass_setting {
  pass* into = nullptr;
  pass_rows rows;
};

}  // namespace qwen38::ops

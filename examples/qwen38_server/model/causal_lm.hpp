// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace qwen38::model {

/// Rows of one sequence in a target pass: row i holds token ids[i] at absolute position `position +
/// i`. `position` must equal the number of tokens already final in the lane.
struct sequence_rows {
  int lane = 0;
  std::int64_t position = 0;
  std::span<std::int32_t const> ids;
  /// true: the rows may still be rejected. Recurrent state is left as it is and a short record is
  /// kept; the next call that concerns this lane must be keep(lane, n). false: the rows are final
  /// at once.
  bool tentative = false;
  /// Index of the first row whose logits are wanted; ids.size() for none.
  std::int64_t logits_from = 0;
};

/// Rows of one sequence in a pass of the MTP layer. MTP row p pairs the hidden state of position p
/// with the token at position p + 1, so ids[i] is the token at `position + i + 1`.
struct draft_rows {
  int lane = 0;
  std::int64_t position = 0;
  std::span<std::int32_t const> ids;
  /// Where row i's hidden state comes from: true: the lane's rows in the latest forward(), which
  /// must have covered positions [position, position + ids.size()). false: the lane's own latest
  /// draft() output (then ids.size() == 1).
  bool from_target = true;
  /// true: return the greedy draft of the last row. false: only the K and V of the rows are
  /// written.
  bool want_draft = true;
};

/// What the engine needs from a model with an MTP drafter. Rows are independent: a row's logits are
/// the same bits whatever else is in the pass, and however the tokens before it were cut into
/// passes. Lanes are numbered 0 .. max_lanes - 1, each with its own state. Not thread-safe: one
/// caller.
class causal_lm {
 public:
  struct limits {
    std::int32_t vocab_size = 0;  ///< rows of the head; logits per row
    std::int32_t valid_ids =
        0;  ///< ids in [valid_ids, vocab_size) have no text and are never produced
    std::int32_t max_lanes = 1;
    std::int64_t max_context = 0;     ///< tokens a lane can hold
    std::int32_t max_rows = 96;       ///< most rows in one pass of any kind
    std::int32_t prefill_chunk = 64;  ///< prefill passes start at multiples of this
    bool has_mtp = false;
  };

  virtual ~causal_lm() = default;
  [[nodiscard]] virtual limits const& get_limits() const noexcept = 0;

  /// Forgets the lane's sequence and any tentative rows. Legal at any time; must be called before
  /// the first pass of every new sequence.
  virtual void reset(int lane) = 0;

  /// One target pass. The returned logits are [rows asked for, vocab_size] fp32, row-major, in the
  /// order of `batch` and its rows; they stay valid until the next forward(). A lane may appear
  /// once.
  virtual std::span<float const> forward(std::span<sequence_rows const> batch) = 0;

  /// Makes the first `rows` rows of the lane's latest tentative pass final and forgets the rest.
  virtual void keep(int lane, std::int64_t rows) = 0;

  /// One pass of the MTP layer. next_ids[j] receives the greedy draft for batch[j] (lowest id wins
  /// a tie, ids beyond valid_ids excluded), or -1 where want_draft is false.
  virtual void draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) = 0;
};

}  // namespace qwen38::model

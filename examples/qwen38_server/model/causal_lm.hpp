// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "ops/ranked_id.hpp"
#include "ops/token_choice.hpp"

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
/// with the token at position p + 1, so ids[i] is the token at `position + i + 1`. Its keys and
/// values lie in slot p + 1, so that what a page holds depends on nothing but the tokens up to the
/// page's end. For the same reason prefill runs the MTP layer one row behind: after a chunk [first,
/// end) it takes rows first - 1 .. end - 2, and with the last chunk of a prompt also row end - 1,
/// whose token was sampled just now.
struct draft_rows {
  int lane = 0;
  std::int64_t position = 0;
  std::span<std::int32_t const> ids;
  /// Where row i's hidden state comes from: true: the lane's rows in the latest forward(), after
  /// which there was no round(), or the last row of its latest chunk. They must have covered
  /// positions [position, position + ids.size()); but after a chunk of a prompt the first row may
  /// be the last one of the chunk before, or of the snapshot resumed from. false: the lane's own
  /// latest draft() output (then ids.size() == 1).
  bool from_target = true;
  /// true: return the greedy draft of the last row. false: only the K and V of the rows are
  /// written.
  bool want_draft = true;
};

/// Tokens that a lane may settle before the MTP layer takes them.
inline constexpr int max_settled = 16;

/// A lane's part in a round.
struct round_lane {
  int lane = 0;
  std::int64_t position = 0;  ///< of the anchor: the number of tokens that are final in the lane
  /// Tokens that the lane's passes gave since its last chunk or the latest round with drafts, that
  /// round's included, in order and without a gap; the last one is the anchor, the first row of the
  /// round's target pass. With drafts, the MTP layer takes them all: at most max_settled. A lane
  /// that drafts no more may leave out all but the anchor.
  std::span<std::int32_t const> settled;
  int drafts = 0;  ///< rows behind the anchor
  /// Of all rows; null: the caller chooses, from logits.
  ops::token_choice const* choice = nullptr;
  /// Of a choice with penalties: the ids up to the anchor, each once, at most ops::max_seen.
  std::span<ops::token_count const> seen = {};
};

/// What a round gives one lane. Valid until the model's next call.
struct round_result {
  std::span<std::int32_t const> drafts;  ///< ids of the rows behind the anchor
  /// For each row, anchor first, the token after it and its logit: not finite where the row is
  /// broken, and id -1 where none may be chosen. Empty where logits are given instead, which any
  /// model may do.
  std::span<ops::ranked_id const> chosen;
  std::span<float const> logits;  ///< fp32 [rows, vocab_size]
};

/// What the engine needs from a model with an MTP drafter. Rows are independent: a row's logits are
/// the same bits whatever else is in the pass, and however the tokens before it were cut into
/// passes; but passes of final rows that fill a chunk of 64 tokens, on absolute borders, begin on
/// such a border, and a pass of more than max_rows rows is of one sequence within prefill_chunk
/// tokens from a multiple of it: how many rows it has may change their bits. Lanes are numbered 0
/// .. max_lanes - 1, each with its own recurrent state; keys and values lie in the pages that the
/// caller gives a sequence, a token's in the slot of its position. Not thread-safe: one caller.
class causal_lm {
 public:
  struct limits {
    std::int32_t vocab_size = 0;  ///< rows of the head; logits per row
    std::int32_t valid_ids =
        0;  ///< ids in [valid_ids, vocab_size) have no text and are never produced
    std::int32_t max_lanes = 1;
    std::int64_t max_context = 0;  ///< tokens a lane can hold
    std::int32_t max_rows = 96;    ///< most rows of decode and verify in one pass, and with logits
    /// Prefill passes start at multiples of this and hold no more rows; the MTP pass after the last
    /// one may have one row more. A multiple of page_tokens.
    std::int32_t prefill_chunk = 64;
    bool has_mtp = false;
    std::int32_t page_tokens = 64;  ///< slots of a page
    std::int32_t kv_pages = 0;      ///< in the pool, numbered from 0
    std::int32_t snapshots = 0;     ///< places for recurrent states, numbered from 0
  };

  virtual ~causal_lm() = default;
  [[nodiscard]] virtual limits const& get_limits() const noexcept = 0;

  /// Starts an empty sequence in the lane and forgets the one before, tentative rows included; what
  /// its pages hold stays. The sequence's slot s lies in page pages[s / page_tokens]; the table is
  /// copied and must cover all its tokens, prompt and answer. No page that the sequence writes may
  /// belong to another one.
  virtual void begin(int lane, std::span<std::int32_t const> pages) = 0;

  /// Copies what the lane needs beside its pages to go on from here: recurrent states, and the last
  /// hidden state for the MTP layer. Only where the number of final tokens is a multiple of
  /// prefill_chunk, and before the lane has decoded anything.
  virtual void save(int lane, std::int32_t snapshot) = 0;

  /// begin(), but the first `position` tokens are there already: `snapshot` was saved after the
  /// same tokens, and the pages below `position` are those that they filled (MTP rows included, if
  /// the sequence drafts). These pages are only read.
  virtual void resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
                      std::int64_t position) = 0;

  /// One target pass. The returned logits are [rows asked for, vocab_size] fp32, row-major, in the
  /// order of `batch` and its rows; they stay valid until the next forward(). A lane may appear
  /// once.
  virtual std::span<float const> forward(std::span<sequence_rows const> batch) = 0;

  /// One round of lanes that are done with their prompts, a lane at most once, all their rows
  /// within max_rows, and so the settled tokens of those that draft: the MTP layer over the rows
  /// that the settled tokens complete, whose last gives the first draft; the other drafts, each
  /// from the row before; then one target pass over anchor and drafts. With drafts its rows are
  /// tentative: keep() must follow; else the one row is final at once.
  virtual void round(std::span<round_lane const> batch, std::span<round_result> results) = 0;

  /// Makes the first `rows` rows of the lane's latest tentative pass final and forgets the rest.
  virtual void keep(int lane, std::int64_t rows) = 0;

  /// One pass of the MTP layer. next_ids[j] receives the greedy draft for batch[j] (lowest id wins
  /// a tie, ids beyond valid_ids excluded), or -1 where want_draft is false.
  virtual void draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) = 0;
};

}  // namespace qwen38::model

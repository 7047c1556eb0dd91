// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/causal_lm.hpp"
#include "test/support/byte_tokenizer.hpp"

namespace qwen38::test {

/// A broken call order: the engine's fault, never the model's.
class protocol_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Faults that a real model might have. Each must make some test of the engine fail.
enum class toy_fault {
  none,
  sum_depends_on_rows,   ///< logits differ in the last bit with the number of rows in the pass
  state_keeps_rejected,  ///< keep(n) leaves the state behind the rejected rows
  draft_one_row_early,   ///< the MTP layer reads the hidden state of the position before
  reset_keeps_state,     ///< a new sequence starts from the last one's state
};

struct toy_options {
  model::causal_lm::limits limits = {.vocab_size = 272,
                                     .valid_ids = byte_vocab_size,
                                     .max_lanes = 3,
                                     .max_context = 512,
                                     .max_rows = 96,
                                     .prefill_chunk = 64,
                                     .has_mtp = true};
  /// Whether the draft of the token at an absolute position, made at a depth of 1 .. k, is what the
  /// target finds likeliest after the same tokens.
  std::function<bool(std::int64_t position, int depth)> agrees = [](std::int64_t, int) {
    return true;
  };
  std::uint64_t weights = 1;
  std::uint64_t end_every = 0;  ///< <|im_end|> is likeliest at one position of so many; 0: never
  toy_fault fault = toy_fault::none;
  // Called first; what they throw is the model's failure.
  std::function<void(std::span<model::sequence_rows const>)> on_forward;
  std::function<void(std::span<model::draft_rows const>)> on_draft;
  std::function<void(int lane)> on_reset;
  /// The logits of the token at this position are NaN.
  std::function<bool(int lane, std::int64_t position)> is_nan;
};

/// Recurrent state after some tokens: all that logits depend on.
struct toy_state {
  std::uint64_t hash = 0;
  float level = 0;
};

/// The smallest model that has what the real one has: recurrent state with tentative rows and
/// records, slots that rejected rows leave dirty, and an MTP layer with slots and hidden states of
/// its own. Its drafts are perfect unless `agrees` says otherwise, but only if it is given the
/// right hidden states and ids. Logits are few values, so ties and near ties are everywhere. It
/// checks the order of calls strictly.
class toy_model final : public model::causal_lm {
 public:
  explicit toy_model(toy_options options) : options_(std::move(options)) {
    lanes_.resize(static_cast<std::size_t>(options_.limits.max_lanes));
  }

  struct call_counts {
    std::int64_t forward_passes = 0;
    std::int64_t draft_passes = 0;
    std::int64_t widest_pass = 0;
    std::int64_t most_sequences = 0;
  };
  [[nodiscard]] call_counts const& counts() const noexcept { return counts_; }
  toy_options& options() noexcept { return options_; }

  [[nodiscard]] static std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  }
  [[nodiscard]] toy_state first_state() const { return {mix(options_.weights), 0.5F}; }
  [[nodiscard]] static toy_state advance(toy_state const& from, std::int32_t id) {
    return {mix(from.hash ^ static_cast<std::uint64_t>(id)),
            0.75F * from.level + 0.1F * static_cast<float>(id % 19)};
  }
  /// row: [vocab_size].
  void logits_after(toy_state const& state, std::span<float> row) const {
    std::uint64_t const seed = state.hash ^ std::bit_cast<std::uint32_t>(state.level);
    for (std::size_t id = 0; id < row.size(); ++id) {
      std::uint64_t const word = mix(seed + 0x10001 * id);
      bool const letter = id >= 'a' && id <= 'h';
      float logit =
          letter ? 0.5F * static_cast<float>(word % 8) : -9 + 0.25F * static_cast<float>(word % 8);
      if (id == static_cast<std::size_t>(im_end_id) && options_.end_every > 0 &&
          word % options_.end_every == 0) {
        logit = 4;
      }
      if (id == static_cast<std::size_t>(think_end_id) && word % 16 == 0) logit = 4;
      if (id >= static_cast<std::size_t>(options_.limits.valid_ids)) logit = 100;
      row[id] = logit;
    }
  }

  [[nodiscard]] limits const& get_limits() const noexcept override { return options_.limits; }

  void reset(int lane) override {
    if (options_.on_reset) options_.on_reset(lane);
    lane_state& at = get(lane);
    toy_state const before = at.state;
    at = {};
    at.state = options_.fault == toy_fault::reset_keeps_state && !std::isnan(before.level)
                   ? before
                   : first_state();
    at.ready = true;
  }

  std::span<float const> forward(std::span<model::sequence_rows const> batch) override {
    if (options_.on_forward) options_.on_forward(batch);
    check_batch(batch);
    latest_.clear();
    logits_.clear();
    for (model::sequence_rows const& rows : batch) run_rows(rows);
    return logits_;
  }

  void keep(int lane, std::int64_t rows) override {
    lane_state& at = get(lane);
    if (!at.tentative) throw protocol_error("keep without a tentative pass");
    std::size_t const wide = at.records.size();
    if (rows < 1 || rows > static_cast<std::int64_t>(wide))
      throw protocol_error("keep: rows out of range");
    auto const kept = static_cast<std::size_t>(rows);
    at.state = at.records[options_.fault == toy_fault::state_keeps_rejected ? wide - 1 : kept - 1];
    at.ids.insert(at.ids.end(), at.slots.begin(), at.slots.begin() + rows);
    at.tentative = false;
  }

  void draft(std::span<model::draft_rows const> batch, std::span<std::int32_t> next_ids) override {
    if (options_.on_draft) options_.on_draft(batch);
    if (!options_.limits.has_mtp) throw protocol_error("draft without an MTP layer");
    if (batch.size() != next_ids.size()) throw protocol_error("draft: one result per sequence");
    if (batch.empty()) throw protocol_error("draft: an empty batch");
    ++counts_.draft_passes;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (batch[i].lane == batch[j].lane) throw protocol_error("draft: a lane appears twice");
      }
      total += std::ssize(batch[i].ids);
      next_ids[i] = draft_lane(batch[i]);
    }
    if (total > widest(batch.size())) throw protocol_error("draft: too many rows");
  }

 private:
  struct mtp_slot {
    std::int32_t id = -1;
    bool from_target = false;
  };
  struct lane_state {
    bool ready = false;                                              // reset, and not failed since
    toy_state state = {0, std::numeric_limits<float>::quiet_NaN()};  // poisoned until reset
    std::vector<std::int32_t> ids;                                   // final
    bool tentative = false;
    std::vector<toy_state> records;   // after each row of the tentative pass
    std::vector<std::int32_t> slots;  // its ids
    std::vector<mtp_slot> mtp_slots;  // by position
    toy_state mtp_hidden;             // of the latest draft
    std::int64_t mtp_position = -1;   // of its row
    int depth = 0;                    // of the latest draft
  };
  struct hidden_rows {
    int lane = 0;
    std::int64_t position = 0;
    std::vector<toy_state> states;  // before the first row, then after each
  };

  lane_state& get(int lane) {
    if (lane < 0 || lane >= options_.limits.max_lanes) throw protocol_error("no such lane");
    return lanes_[static_cast<std::size_t>(lane)];
  }

  /// max_rows is for decode and verify; one sequence alone may bring a chunk of its prompt.
  [[nodiscard]] std::int64_t widest(std::size_t sequences) const {
    std::int32_t const chunk = sequences == 1 ? options_.limits.prefill_chunk : 0;
    return std::max(options_.limits.max_rows, chunk);
  }

  void check_batch(std::span<model::sequence_rows const> batch) {
    if (batch.empty()) throw protocol_error("forward: an empty batch");
    std::int64_t total = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      model::sequence_rows const& rows = batch[i];
      lane_state const& at = get(rows.lane);
      for (std::size_t j = 0; j < i; ++j) {
        if (rows.lane == batch[j].lane) throw protocol_error("forward: a lane appears twice");
      }
      std::int64_t const wide = std::ssize(rows.ids);
      total += wide;
      if (wide < 1) throw protocol_error("forward: no rows");
      if (!at.ready) throw protocol_error("forward: a lane that was not reset");
      if (at.tentative) throw protocol_error("forward: the tentative rows before were not kept");
      if (rows.position != std::ssize(at.ids)) throw protocol_error("forward: not the final count");
      if (rows.position + wide > options_.limits.max_context)
        throw protocol_error("forward: beyond the context");
      if (rows.logits_from < 0 || rows.logits_from > wide)
        throw protocol_error("forward: logits_from");
      if (rows.tentative && wide > 16) throw protocol_error("forward: too many tentative rows");
      if (!rows.tentative && wide > 1) {  // only a prompt is final at once
        if (batch.size() > 1) throw protocol_error("prefill: more than one sequence in a pass");
        if (rows.position % options_.limits.prefill_chunk != 0)
          throw protocol_error("prefill: not a chunk border");
        if (wide > options_.limits.prefill_chunk)
          throw protocol_error("prefill: longer than a chunk");
      }
      for (std::int32_t id : rows.ids) {
        if (id < 0 || id >= options_.limits.vocab_size) throw protocol_error("forward: no such id");
      }
      // The anchor was an input of the MTP layer before.
      if (rows.position > 0 && std::ssize(at.mtp_slots) >= rows.position) {
        mtp_slot const& last = at.mtp_slots[static_cast<std::size_t>(rows.position) - 1];
        if (last.from_target && last.id != rows.ids[0])
          throw protocol_error("the MTP layer saw another anchor");
      }
    }
    if (total > widest(batch.size())) throw protocol_error("forward: too many rows");
    ++counts_.forward_passes;
    counts_.widest_pass = std::max(counts_.widest_pass, total);
    counts_.most_sequences = std::max<std::int64_t>(counts_.most_sequences, std::ssize(batch));
    rows_in_pass_ = total;
  }

  void run_rows(model::sequence_rows const& rows) {
    lane_state& at = get(rows.lane);
    hidden_rows hidden{rows.lane, rows.position, {at.state}};
    toy_state state = at.state;
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      state = advance(state, rows.ids[i]);
      hidden.states.push_back(state);
      if (static_cast<std::int64_t>(i) >= rows.logits_from) {
        append_logits(state, rows.lane, rows.position + static_cast<std::int64_t>(i) + 1);
      }
    }
    if (rows.tentative) {
      at.tentative = true;
      at.records.assign(hidden.states.begin() + 1, hidden.states.end());
      at.slots.assign(rows.ids.begin(), rows.ids.end());
    } else {
      at.state = state;
      at.ids.insert(at.ids.end(), rows.ids.begin(), rows.ids.end());
    }
    latest_.push_back(std::move(hidden));
  }

  void append_logits(toy_state const& state, int lane, std::int64_t position) {
    std::size_t const first = logits_.size();
    logits_.resize(first + static_cast<std::size_t>(options_.limits.vocab_size));
    auto const row = std::span(logits_).subspan(first);
    logits_after(state, row);
    if (options_.is_nan && options_.is_nan(lane, position)) {
      std::ranges::fill(row, std::numeric_limits<float>::quiet_NaN());
    }
    if (options_.fault == toy_fault::sum_depends_on_rows && rows_in_pass_ > 1) {
      for (std::size_t id = 0; id < row.size(); ++id) {
        bool const up = (mix(state.hash + id) + static_cast<std::uint64_t>(rows_in_pass_)) % 2 == 0;
        row[id] = std::nextafter(row[id], up ? 200.F : -200.F);
      }
    }
  }

  toy_state const& target_hidden(int lane, std::int64_t position) const {
    for (hidden_rows const& rows : latest_) {
      std::int64_t const row = position - rows.position;
      if (rows.lane != lane || row < 0 || row + 1 >= std::ssize(rows.states)) continue;
      bool const early = options_.fault == toy_fault::draft_one_row_early;
      return rows.states[static_cast<std::size_t>(early ? row : row + 1)];
    }
    throw protocol_error("draft: the latest pass does not hold the hidden states");
  }

  std::int32_t draft_lane(model::draft_rows const& rows) {
    lane_state& at = get(rows.lane);
    std::int64_t const wide = std::ssize(rows.ids);
    if (wide < 1) throw protocol_error("draft: no rows");
    if (at.tentative) throw protocol_error("draft: the tentative rows before were not kept");
    if (rows.position < 0 || rows.position > std::ssize(at.mtp_slots))
      throw protocol_error("draft: a gap");
    if (rows.position + wide >= options_.limits.max_context)
      throw protocol_error("draft: beyond the context");
    std::int64_t const count = std::ssize(at.ids);
    if (rows.from_target) {
      if (rows.position + wide > count) throw protocol_error("draft: rows that are not final");
    } else {
      if (wide != 1 || !rows.want_draft) throw protocol_error("draft: a chained draft is one row");
      if (rows.position != at.mtp_position + 1)
        throw protocol_error("draft: not the next row of the chain");
      if (rows.position < count)
        throw protocol_error("draft: the chain would overwrite a final row");
    }
    at.mtp_slots.resize(static_cast<std::size_t>(rows.position + wide));
    for (std::int64_t i = 0; i < wide; ++i) {
      std::int64_t const p = rows.position + i;
      std::int32_t const id = rows.ids[static_cast<std::size_t>(i)];
      if (rows.from_target && p + 1 < count && at.ids[static_cast<std::size_t>(p) + 1] != id) {
        throw protocol_error("draft: not the token after the row");
      }
      if (rows.from_target) static_cast<void>(target_hidden(rows.lane, p));
      at.mtp_slots[static_cast<std::size_t>(p)] = {id, rows.from_target};
    }
    return rows.want_draft ? make_draft(rows, at) : -1;
  }

  std::int32_t make_draft(model::draft_rows const& rows, lane_state& at) {
    std::int64_t const last = rows.position + std::ssize(rows.ids) - 1;
    for (std::int64_t p = 0; p < std::min(last, std::ssize(at.ids)); ++p) {
      if (!at.mtp_slots[static_cast<std::size_t>(p)].from_target) {
        throw protocol_error("draft: attends to a final row without the target's hidden state");
      }
    }
    toy_state const hidden = rows.from_target ? target_hidden(rows.lane, last) : at.mtp_hidden;
    at.mtp_hidden = advance(hidden, rows.ids.back());
    at.mtp_position = last;
    at.depth = rows.from_target ? 1 : at.depth + 1;

    std::vector<float> row(static_cast<std::size_t>(options_.limits.vocab_size));
    logits_after(at.mtp_hidden, row);
    auto const valid = std::span(row).first(static_cast<std::size_t>(options_.limits.valid_ids));
    auto const best = static_cast<std::int32_t>(std::ranges::max_element(valid) - valid.begin());
    if (options_.agrees(last + 2, at.depth)) return best;
    return best == 'z' ? 'y' : 'z';
  }

  toy_options options_;
  std::vector<lane_state> lanes_;
  std::vector<hidden_rows> latest_;
  std::vector<float> logits_;
  std::int64_t rows_in_pass_ = 0;
  call_counts counts_;
};

}  // namespace qwen38::test

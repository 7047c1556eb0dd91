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
#include "test/engine/stepwise_round.hpp"
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
  begin_keeps_state,     ///< a new sequence starts from the last one's state
  snapshot_is_early,     ///< a snapshot holds the state before the last token
};

struct toy_options {
  model::causal_lm::limits limits = {.vocab_size = 272,
                                     .valid_ids = byte_vocab_size,
                                     .max_lanes = 3,
                                     .max_context = 512,
                                     .max_rows = 96,
                                     .prefill_chunk = 64,
                                     .has_mtp = true,
                                     .page_tokens = 64,
                                     .kv_pages = 0,  // as many as all lanes need
                                     .snapshots = 0};
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
  std::function<void(int lane)> on_begin;
  std::function<void(int lane)> on_save;
  /// The logits of the token at this position are NaN.
  std::function<bool(int lane, std::int64_t position)> is_nan;
};

/// Recurrent state after some tokens: all that logits depend on.
struct toy_state {
  std::uint64_t hash = 0;
  float level = 0;
};

/// The smallest model that has what the real one has: recurrent state with tentative rows, records
/// and snapshots, paged slots that rejected rows leave dirty, and an MTP layer with slots and
/// hidden states of its own. Its drafts are perfect unless `agrees` says otherwise, but only if it
/// is given the right hidden states and ids. Logits are few values, so ties and near ties are
/// everywhere.
///
/// It checks the order of calls strictly, and that each slot a pass attends to holds what the
/// lane's own tokens would have written there; a sequence that begins spoils all pages it may
/// write.
class toy_model final : public model::causal_lm {
 public:
  explicit toy_model(toy_options options) : options_(std::move(options)) {
    auto& sizes = options_.limits;
    lanes_.resize(static_cast<std::size_t>(std::max(sizes.max_lanes, 0)));
    if (sizes.kv_pages == 0) {
      sizes.kv_pages = static_cast<std::int32_t>(
          sizes.max_lanes * ((sizes.max_context + sizes.page_tokens - 1) / sizes.page_tokens));
    }
    slots_.resize(static_cast<std::size_t>(std::max(sizes.kv_pages * sizes.page_tokens, 0)));
    snapshots_.resize(static_cast<std::size_t>(std::max(sizes.snapshots, 0)));
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

  void begin(int lane, std::span<std::int32_t const> pages) override {
    if (options_.on_begin) options_.on_begin(lane);
    lane_state& at = get(lane);
    toy_state const before = at.state;
    start(at, pages, 0);
    at.state = options_.fault == toy_fault::begin_keeps_state && !std::isnan(before.level)
                   ? before
                   : first_state();
  }

  void save(int lane, std::int32_t snapshot) override {
    if (options_.on_save) options_.on_save(lane);
    lane_state const& at = get(lane);
    snapshot_state& to = get_snapshot(snapshot);
    auto const tokens = std::ssize(at.ids);
    if (!at.ready || at.tentative || at.decoded) throw protocol_error("save: not in prefill");
    if (tokens == 0 || tokens % options_.limits.prefill_chunk != 0)
      throw protocol_error("save: not a chunk border");
    if (options_.limits.has_mtp && at.mtp_rows < tokens - 1)
      throw protocol_error("save: MTP rows are missing");
    check_slots(at, tokens);
    to = {at.state, at.ids, at.states};
    if (options_.fault == toy_fault::snapshot_is_early)
      to.state = tokens > 1 ? at.states[static_cast<std::size_t>(tokens) - 2] : first_state();
  }

  void resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
              std::int64_t position) override {
    if (options_.on_begin) options_.on_begin(lane);
    snapshot_state const& from = get_snapshot(snapshot);
    if (position < 1 || position != std::ssize(from.ids))
      throw protocol_error("resume: not the snapshot's position");
    lane_state& at = get(lane);
    start(at, pages, position);
    at.state = from.state;
    at.ids = from.ids;
    at.states = from.states;
    at.mtp_rows = options_.limits.has_mtp ? position - 1 : 0;
    check_slots(at, position);
  }

  std::span<float const> forward(std::span<model::sequence_rows const> batch) override {
    if (options_.on_forward) options_.on_forward(batch);
    check_batch(batch);
    std::erase_if(latest_, [&](hidden_rows const& held) {
      return std::ranges::any_of(batch, [&](model::sequence_rows const& rows) {
        bool const settles = in_round_ && !rows.tentative;  // the MTP layer may take it later
        return rows.lane == held.lane && !settles;
      });
    });
    logits_.clear();
    for (model::sequence_rows const& rows : batch) run_rows(rows);
    return logits_;
  }

  void round(std::span<model::round_lane const> batch,
             std::span<model::round_result> results) override {
    struct mark {
      bool& set;
      explicit mark(bool& to) : set(to) { set = true; }
      ~mark() { set = false; }
    } const round(in_round_);
    stepwise_.run(*this, batch, results);
  }

  void keep(int lane, std::int64_t rows) override {
    lane_state& at = get(lane);
    if (!at.tentative) throw protocol_error("keep without a tentative pass");
    std::size_t const wide = at.records.size();
    if (rows < 1 || rows > static_cast<std::int64_t>(wide))
      throw protocol_error("keep: rows out of range");
    auto const kept = static_cast<std::size_t>(rows);
    at.state = at.records[options_.fault == toy_fault::state_keeps_rejected ? wide - 1 : kept - 1];
    at.ids.insert(at.ids.end(), at.guesses.begin(), at.guesses.begin() + rows);
    at.states.insert(at.states.end(), at.records.begin(), at.records.begin() + rows);
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
    // The rows of a chunk run one behind, and those of the last one catch up.
    if (total > widest(batch.size()) + (batch.size() == 1 ? 1 : 0))
      throw protocol_error("draft: too many rows");
  }

 private:
  /// What a slot of the KV cache holds: a token's row of the target's layers, and the MTP row that
  /// consumed this token.
  struct kv_slot {
    std::int32_t id = -1;
    std::uint64_t hash = 0;  // of the state after the token
    std::int32_t mtp_id = -1;
    std::uint64_t mtp_hash = 0;  // of the hidden state that came with it
    bool from_target = false;
  };
  struct lane_state {
    bool ready = false;  // begun, and not failed since
    bool decoded = false;
    std::vector<std::int32_t> pages;
    toy_state state = {0, std::numeric_limits<float>::quiet_NaN()};  // poisoned until begun
    std::vector<std::int32_t> ids;                                   // final
    std::vector<toy_state> states;                                   // after each of them
    bool tentative = false;
    std::vector<toy_state> records;     // after each row of the tentative pass
    std::vector<std::int32_t> guesses;  // its ids
    std::int64_t mtp_rows = 0;          // without a gap from the first
    std::int64_t carried = -1;          // position before the latest pass, if that was prefill
    toy_state mtp_hidden;               // of the latest draft
    std::int64_t mtp_position = -1;     // of its row
    int depth = 0;                      // of the latest draft
  };
  struct snapshot_state {
    toy_state state;
    std::vector<std::int32_t> ids;
    std::vector<toy_state> states;
  };
  struct hidden_rows {
    int lane = 0;
    std::int64_t position = 0;
    std::vector<toy_state> states;  // before the first row, then after each
  };

  void start(lane_state& at, std::span<std::int32_t const> pages, std::int64_t tokens) {
    at = {};
    at.pages.assign(pages.begin(), pages.end());
    std::int64_t const kept = tokens / options_.limits.page_tokens;
    for (std::int64_t i = 0; i < std::ssize(pages); ++i) {
      std::int32_t const page = pages[static_cast<std::size_t>(i)];
      if (page < 0 || page >= options_.limits.kv_pages) throw protocol_error("no such page");
      if (std::ranges::count(pages, page) > 1) throw protocol_error("a page twice");
      auto const first = slots_.begin() + std::ptrdiff_t{page} * options_.limits.page_tokens;
      if (i >= kept) std::fill_n(first, options_.limits.page_tokens, kv_slot{});
    }
    at.ready = true;
  }

  snapshot_state& get_snapshot(std::int32_t snapshot) {
    if (snapshot < 0 || snapshot >= options_.limits.snapshots)
      throw protocol_error("no such snapshot");
    return snapshots_[static_cast<std::size_t>(snapshot)];
  }

  kv_slot& slot_at(lane_state const& at, std::int64_t slot) {
    auto const page = static_cast<std::size_t>(slot / options_.limits.page_tokens);
    if (slot < 0 || page >= at.pages.size()) throw protocol_error("a slot beyond the pages");
    return slots_[static_cast<std::size_t>(at.pages[page] * options_.limits.page_tokens +
                                           slot % options_.limits.page_tokens)];
  }

  /// The first `count` slots hold the lane's own tokens.
  void check_slots(lane_state const& at, std::int64_t count) {
    for (std::int64_t p = 0; p < count; ++p) {
      auto const i = static_cast<std::size_t>(p);
      kv_slot const& slot = slot_at(at, p);
      if (slot.id != at.ids[i] || slot.hash != at.states[i].hash)
        throw protocol_error("a slot that holds another sequence's token");
    }
  }

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
      if (!at.ready) throw protocol_error("forward: a lane that was not begun");
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
      check_slots(at, rows.position);
      // The anchor was an input of the MTP layer before.
      kv_slot const& first = slot_at(at, rows.position);
      if (at.mtp_rows >= rows.position && first.from_target && first.mtp_id != rows.ids[0])
        throw protocol_error("the MTP layer saw another anchor");
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
      kv_slot& slot = slot_at(at, rows.position + static_cast<std::int64_t>(i));
      slot.id = rows.ids[i];
      slot.hash = state.hash;
      if (static_cast<std::int64_t>(i) >= rows.logits_from) {
        append_logits(state, rows.lane, rows.position + static_cast<std::int64_t>(i) + 1);
      }
    }
    if (rows.tentative) {
      at.tentative = true;
      at.records.assign(hidden.states.begin() + 1, hidden.states.end());
      at.guesses.assign(rows.ids.begin(), rows.ids.end());
      at.decoded = true;
      at.carried = -1;
    } else {
      at.carried = at.decoded ? -1 : rows.position - 1;
      at.state = state;
      at.ids.insert(at.ids.end(), rows.ids.begin(), rows.ids.end());
      at.states.insert(at.states.end(), hidden.states.begin() + 1, hidden.states.end());
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

  toy_state target_hidden(int lane, std::int64_t position) const {
    bool const early = options_.fault == toy_fault::draft_one_row_early;
    for (auto held = latest_.rbegin(); held != latest_.rend(); ++held) {
      hidden_rows const& rows = *held;
      if (rows.lane != lane) continue;
      std::int64_t const row = position - rows.position;
      if (row >= 0 && row + 1 < std::ssize(rows.states))
        return rows.states[static_cast<std::size_t>(early ? row : row + 1)];
      if (position == lanes_[static_cast<std::size_t>(lane)].carried) return rows.states[0];
    }
    throw protocol_error("draft: the latest pass does not hold the hidden states");
  }

  std::int32_t draft_lane(model::draft_rows const& rows) {
    lane_state& at = get(rows.lane);
    std::int64_t const wide = std::ssize(rows.ids);
    if (wide < 1) throw protocol_error("draft: no rows");
    if (at.tentative) throw protocol_error("draft: the tentative rows before were not kept");
    if (!at.ready) throw protocol_error("draft: a lane that was not begun");
    if (rows.position < 0 || rows.position > at.mtp_rows) throw protocol_error("draft: a gap");
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
    at.mtp_rows = rows.position + wide;
    for (std::int64_t i = 0; i < wide; ++i) {
      std::int64_t const p = rows.position + i;
      std::int32_t const id = rows.ids[static_cast<std::size_t>(i)];
      if (rows.from_target && p + 1 < count && at.ids[static_cast<std::size_t>(p) + 1] != id) {
        throw protocol_error("draft: not the token after the row");
      }
      if (rows.from_target) static_cast<void>(target_hidden(rows.lane, p));
      kv_slot& slot = slot_at(at, p + 1);
      slot.mtp_id = id;
      slot.mtp_hash = p < count ? at.states[static_cast<std::size_t>(p)].hash : 0;
      slot.from_target = rows.from_target;
    }
    return rows.want_draft ? make_draft(rows, at) : -1;
  }

  std::int32_t make_draft(model::draft_rows const& rows, lane_state& at) {
    std::int64_t const last = rows.position + std::ssize(rows.ids) - 1;
    auto const count = std::ssize(at.ids);
    for (std::int64_t p = 0; p < std::min(last, count); ++p) {
      kv_slot const& slot = slot_at(at, p + 1);
      if (!slot.from_target || slot.mtp_hash != at.states[static_cast<std::size_t>(p)].hash) {
        throw protocol_error("draft: attends to a final row without the target's hidden state");
      }
      if (p + 1 < count && slot.mtp_id != at.ids[static_cast<std::size_t>(p) + 1])
        throw protocol_error("draft: attends to another sequence's row");
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
  std::vector<kv_slot> slots_;  // of all pages
  std::vector<snapshot_state> snapshots_;
  std::vector<hidden_rows> latest_;  // of each lane
  stepwise_round stepwise_;
  bool in_round_ = false;
  std::vector<float> logits_;
  std::int64_t rows_in_pass_ = 0;
  call_counts counts_;
};

}  // namespace qwen38::test

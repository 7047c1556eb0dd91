// SPDX-License-Identifier: Apache-2.0
// Rounds of decode. All that a round's operations work on is known before it begins, or lies on the
// device; so they are queued one after the other, and the host waits once, for the ids.

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "model/recordings.hpp"
#include "model/workspace.hpp"
#include "support/error.hpp"

namespace qwen38::model {
namespace {

// Passes of a round, and their lists of row moves.
constexpr std::size_t target = 0;
constexpr std::size_t mtp = 1;      // the rows that became settled
constexpr std::size_t drafter = 2;  // the first draft's; then a pass for each further one
constexpr int settle_moves = 0;     // target: hidden states that may become settled
constexpr int source_moves = 0;     // mtp: hidden states that its rows start from
constexpr int last_moves = 1;       // mtp: rows that draft

constexpr std::int64_t smallest_bucket_slots = 256;

void require(bool condition, char const* sentence) {
  if (!condition) throw error(error_kind::internal, sentence);
}

std::int64_t power_of_two(std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

/// Those that the lane's choice goes by.
std::span<ops::token_count const> seen_of(round_lane const& one) {
  bool const penalises = one.choice != nullptr && one.choice->penalties.any();
  return penalises ? one.seen : std::span<ops::token_count const>();
}

/// 0, 1, 3, 7 or 15.
std::int64_t bucket_drafts(std::int64_t drafts) {
  return power_of_two(drafts + 1) - 1;
}

}  // namespace

/// One pass while it is put together.
struct pass_draft {
  std::vector<std::int32_t> ids;
  std::vector<ops::row_span> spans;
  std::array<std::vector<ops::row_move>, ops::row_move_lists> moves;
  std::vector<ops::row_choice> choices;
  std::int64_t slot_offset = 0;

  [[nodiscard]] std::int64_t rows() const {
    return spans.empty() ? 0 : spans.back().first_row + spans.back().rows;
  }
  [[nodiscard]] ops::pass_rows view() const {
    ops::pass_rows out{spans, ids, {}, slot_offset, choices, {}};
    for (std::size_t i = 0; i < moves.size(); ++i) out.moves[i] = moves[i];
    return out;
  }
};

/// The passes of a round for its lanes, those with more drafts first.
struct qwen38_model::round_rows {
  round_shape shape;
  std::vector<std::size_t> order;  ///< indices of the caller's batch
  std::vector<pass_draft> passes;
};

qwen38_model::round_rows qwen38_model::plan_round(std::span<round_lane const> batch) const {
  round_rows plan;
  round_shape& shape = plan.shape;
  for (std::size_t i = 0; i < batch.size(); ++i) plan.order.push_back(i);
  std::ranges::stable_sort(plan.order, std::ranges::greater{},
                           [&](std::size_t i) { return batch[i].drafts; });
  for (round_lane const& one : batch) {
    require(one.lane >= 0 && one.lane < limits_.max_lanes, "round: no such lane");
    lane_state const& at = lanes_[static_cast<std::size_t>(one.lane)];
    auto const settled = std::ssize(one.settled);
    require(one.position == at.position, "round: rows that do not follow the final ones");
    require(one.drafts >= 0 && one.drafts < max_tentative_rows &&
                one.position + one.drafts < limits_.max_context,
            "round: 0 to 15 drafts within the declared context");
    require(settled > 0, "round: a lane without an anchor");
    shape.rows += one.drafts + 1;
    shape.drafts = std::max<std::int64_t>(shape.drafts, one.drafts);
    shape.slots = std::max(shape.slots, one.position + one.drafts + 1);
    shape.logits = shape.logits || one.choice == nullptr || !one.choice->is_greedy() ||
                   one.choice->penalties.any();
    require(std::ssize(one.seen) <= ops::max_seen, "round: at most 32768 ids seen");
    for (int depth = 0; depth < one.drafts; ++depth)
      ++shape.drafting[static_cast<std::size_t>(depth)];
    if (one.drafts == 0) continue;
    require(limits_.has_mtp, "round: the model has no MTP layer");
    require(at.settled_from + settled == one.position && settled <= at.settled_rows,
            "round: the hidden states of the settled tokens are not held");
    shape.mtp_rows += settled;
    shape.settled = std::max(shape.settled, settled);
  }
  require(!batch.empty() && shape.rows <= max_rows && shape.mtp_rows <= max_rows,
          "round: a pass holds 1 to 96 rows");
  shape.lanes = std::ssize(batch);
  shape.filled_up = backend_->records() && !tap_ && (!ranks_ || ranks_->can_capture());
  if (shape.filled_up) {
    shape.lanes = std::min<std::int64_t>(power_of_two(shape.lanes), max_rows);
    shape.drafts = bucket_drafts(shape.drafts);
    if (shape.drafts > 0) shape.settled = power_of_two(std::max(shape.drafts + 1, shape.settled));
    shape.slots = std::max(
        std::min(power_of_two(shape.slots), std::int64_t{limits_.kv_pages} * limits_.page_tokens),
        smallest_bucket_slots);
    shape.rows = std::min<std::int64_t>(shape.lanes * (shape.drafts + 1), max_rows);
    shape.mtp_rows = std::min<std::int64_t>(shape.lanes * shape.settled, max_rows);
    shape.drafting.fill(shape.lanes);
  }
  fill_passes(batch, plan);
  return plan;
}

/// Where the hidden states of a lane's rows are held: behind those that the MTP layer has not taken
/// yet, after a round without drafts; once there are too many, only the latest.
std::int64_t qwen38_model::first_held(round_lane const& one) const {
  lane_state const& at = lanes_[static_cast<std::size_t>(one.lane)];
  std::int64_t const waiting = one.position - at.settled_from;
  return one.drafts == 0 && waiting < max_settled ? waiting : 0;
}

void qwen38_model::fill_passes(std::span<round_lane const> batch, round_rows& plan) const {
  round_shape const& shape = plan.shape;
  bool const drafts = shape.drafts > 0;
  plan.passes.resize(drafts ? drafter + static_cast<std::size_t>(shape.drafts) : 1);
  // Token i * lanes + j is draft i + 1 of the j-th lane.
  for (std::size_t j = 0; j < plan.order.size(); ++j) {
    round_lane const& one = batch[plan.order[j]];
    lane_state const& at = lanes_[static_cast<std::size_t>(one.lane)];
    pass_draft& rows = plan.passes[target];
    std::int64_t const first = rows.rows();
    rows.spans.push_back(
        {one.lane, one.position, first, one.drafts + 1, one.drafts > 0, at.pages, seen_of(one)});
    rows.ids.push_back(one.settled.back());
    for (int i = 0; i < one.drafts; ++i) {
      rows.ids.push_back(ops::id_in_place(i * shape.lanes + static_cast<std::int64_t>(j)));
    }
    for (int i = 0; i <= one.drafts; ++i) {
      rows.choices.push_back(
          {one.choice == nullptr ? ops::token_choice{} : *one.choice, one.position + 1 + i});
    }
    if (limits_.has_mtp) {
      for (int i = 0; i <= one.drafts; ++i) {
        rows.moves[settle_moves].push_back(
            {static_cast<std::int32_t>(first + i), settled_row(one.lane, first_held(one) + i)});
      }
    }
    if (one.drafts == 0) continue;

    pass_draft& settled = plan.passes[mtp];
    std::int64_t const from = settled.rows();
    std::int64_t const count = std::ssize(one.settled);
    settled.spans.push_back({one.lane, one.position - count, from, count, false, at.pages});
    settled.ids.insert(settled.ids.end(), one.settled.begin(), one.settled.end());
    for (std::int64_t i = 0; i < count; ++i) {
      settled.moves[source_moves].push_back(
          {settled_row(one.lane, i), static_cast<std::int32_t>(from + i)});
    }
    auto const row = static_cast<std::int32_t>(j);
    settled.moves[last_moves].push_back({static_cast<std::int32_t>(from + count - 1), row});
    for (int i = 0; i < one.drafts; ++i) {
      pass_draft& drafting = plan.passes[drafter + static_cast<std::size_t>(i)];
      drafting.spans.push_back({one.lane, one.position - 1 + i, row, 1, false, at.pages});
      if (i > 0) drafting.ids.push_back(ops::id_in_place((i - 1) * shape.lanes + row));
    }
  }
  // The MTP layer's row p consumes the token at p + 1 and lies in its slot.
  for (std::size_t i = mtp; i < plan.passes.size(); ++i) plan.passes[i].slot_offset = 1;
  if (!shape.filled_up) return;
  auto const rows = static_cast<std::size_t>(shape.rows);
  auto const fill = [](std::vector<ops::row_move>& list, std::size_t count, auto const& added) {
    while (list.size() < count) list.push_back(added(static_cast<std::int32_t>(list.size())));
  };
  plan.passes[target].ids.resize(rows, 0);
  plan.passes[target].choices.resize(rows);
  if (limits_.has_mtp) {
    fill(plan.passes[target].moves[settle_moves], rows, [&](std::int32_t row) {
      return ops::row_move{row, unread_row()};
    });
  }
  if (!drafts) return;
  auto const mtp_rows = static_cast<std::size_t>(shape.mtp_rows);
  plan.passes[mtp].ids.resize(mtp_rows, 0);
  fill(plan.passes[mtp].moves[source_moves], mtp_rows, [&](std::int32_t row) {
    return ops::row_move{unread_row(), row};
  });
  fill(plan.passes[mtp].moves[last_moves], static_cast<std::size_t>(shape.lanes),
       [&](std::int32_t row) {
         return ops::row_move{0, row};
       });
  for (std::size_t i = drafter + 1; i < plan.passes.size(); ++i) {
    plan.passes[i].ids.resize(static_cast<std::size_t>(shape.lanes), 0);
  }
}

void qwen38_model::set_round_passes(round_rows const& plan) {
  round_shape const& shape = plan.shape;
  std::vector<ops::pass_setting> settings;
  for (std::size_t i = 0; i < plan.passes.size(); ++i) {
    ops::pass_rows rows = plan.passes[i].view();
    if (shape.filled_up) {
      rows.size = {shape.rows, shape.lanes, shape.drafts + 1, shape.slots, limits_.kv_pages};
      if (i == mtp) {
        rows.size->rows = shape.mtp_rows;
        rows.size->longest_span = shape.settled;
      } else if (i >= drafter) {
        rows.size->rows = shape.lanes;
        rows.size->longest_span = 1;
      }
    }
    settings.push_back({work_->round_passes[i].get(), rows});
  }
  backend_->set_passes(settings);
}

/// Nothing here may depend on the plan but for its shape.
void qwen38_model::run_round(round_shape const& shape) {
  auto const& passes = work_->round_passes;
  auto const tokens = [&](std::int64_t first, std::int64_t count) {
    return work_->tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  if (shape.drafts > 0) {
    std::int64_t const count = shape.drafting[0];
    ops::tensor const source = work_->draft_source.slice_rows(0, shape.mtp_rows);
    backend_->move_rows(*passes[mtp], source_moves, work_->held, source);
    ops::tensor const x = mtp_inputs(*passes[mtp], source);
    store_mtp_kv(*passes[mtp], x);
    ops::tensor const last = work_->draft_x.slice_rows(0, count);
    backend_->move_rows(*passes[mtp], last_moves, x, last);
    make_drafts(*passes[drafter], last, tokens(0, count));
  }
  for (std::int64_t i = 1; i < shape.drafts; ++i) {
    std::int64_t const count = shape.drafting[static_cast<std::size_t>(i)];
    ops::pass const& p = *passes[drafter + static_cast<std::size_t>(i)];
    ops::tensor const x = mtp_inputs(p, work_->draft_out.slice_rows(0, count));
    make_drafts(p, x, tokens(i * shape.lanes, count));
  }
  ops::tensor const hidden = run_target(*passes[target], shape.rows);
  if (limits_.has_mtp) {
    backend_->move_rows(*passes[target], settle_moves, hidden, work_->held);
  }
  ops::tensor const selected = work_->selected.slice_rows(0, shape.rows);
  backend_->copy(hidden, selected);
  ops::token_list const chosen = tokens(shape.drafts * shape.lanes, shape.rows);
  if (!shape.logits) {
    choose_best(selected, chosen);
    return;
  }
  ops::tensor const logits = compute_logits(selected);
  if (logits.rows > 0) {
    backend_->choose_tokens(*passes[target], work_->tokens, logits, limits_.valid_ids, chosen);
  }
}

void qwen38_model::round(std::span<round_lane const> batch, std::span<round_result> results) {
  require(batch.size() == results.size(), "round: one result per lane");
  round_rows const plan = plan_round(batch);
  round_shape const& shape = plan.shape;
  latest_.clear();
  set_round_passes(plan);
  if (shape.filled_up) {
    work_->recorded.run(*backend_,
                        {shape.lanes, shape.drafts, shape.settled, shape.slots, shape.logits},
                        [&] { run_round(shape); });
  } else {
    run_round(shape);
  }
  for (round_lane const& one : batch) {
    lane_state& at = lane_at(one.lane);
    std::int64_t const first = first_held(one);
    at.settled_from = one.position - first;
    at.settled_rows = first + one.drafts + 1;
    if (one.drafts == 0) ++at.position;
  }
  read_round(batch, plan, results);
}

void qwen38_model::read_round(std::span<round_lane const> batch, round_rows const& plan,
                              std::span<round_result> results) {
  round_shape const& shape = plan.shape;
  bool const is_first = !ranks_ || ranks_->rank() == 0;
  std::ranges::fill(results, round_result{});
  if (!is_first) return;
  std::int64_t const drafts = shape.drafts * shape.lanes;
  chosen_.resize(static_cast<std::size_t>(drafts + shape.rows));
  backend_->read(work_->tokens.first(chosen_.size()), chosen_);
  bool const reads_logits =
      std::ranges::any_of(batch, [](round_lane const& one) { return one.choice == nullptr; });
  if (reads_logits) {
    ops::tensor const& all = ranks_ ? work_->all_logits : work_->logits;
    logits_.resize(static_cast<std::size_t>(shape.rows * all.cols));
    backend_->read(all.slice_rows(0, shape.rows), logits_);
  }
  draft_ids_.clear();
  draft_ids_.reserve(static_cast<std::size_t>(drafts));
  for (std::size_t j = 0; j < plan.order.size(); ++j) {
    round_lane const& one = batch[plan.order[j]];
    round_result& result = results[plan.order[j]];
    std::size_t const first = draft_ids_.size();
    for (std::int64_t i = 0; i < one.drafts; ++i) {
      draft_ids_.push_back(chosen_[static_cast<std::size_t>(i * shape.lanes) + j].id);
    }
    result.drafts = std::span(draft_ids_).subspan(first);
    auto const rows = static_cast<std::size_t>(one.drafts + 1);
    auto const row = static_cast<std::size_t>(plan.passes[target].spans[j].first_row);
    if (one.choice != nullptr) {
      result.chosen = std::span(chosen_).subspan(static_cast<std::size_t>(drafts) + row, rows);
    } else {
      auto const width = static_cast<std::size_t>(limits_.vocab_size);
      result.logits = std::span(logits_).subspan(row * width, rows * width);
    }
  }
}

}  // namespace qwen38::model

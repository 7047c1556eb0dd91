// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>

#include "support/error.hpp"

namespace qwen38::engine {

/// Calls call(); if it throws, the lanes concerned end and false is returned.
template <class Call>
bool speculative_loop::attempt(std::span<lane* const> concerned, Call const& call) {
  std::string sentence;
  try {
    call();
    return true;
  } catch (error const& what) {
    sentence = what.what();
    if (on_fault_) on_fault_(sentence);
  } catch (std::exception const& what) {
    // The text of a foreign exception is for the log, not for a client.
    sentence = "The model failed while it computed this answer.";
    if (on_fault_) on_fault_(what.what());
  }
  for (lane* const one : concerned) one->work->end(finish_reason::failed, sentence);
  return false;
}

void speculative_loop::begin(lane& one, generation& work, reservation const& held) {
  one.begin(work, held.cached);
  lane* const self = &one;
  attempt(std::span(&self, 1), [&] {
    work.begin();
    if (held.cached > 0) {
      model_.resume(one.index, held.pages, held.snapshot, held.cached);
    } else {
      model_.begin(one.index, held.pages);
    }
  });
}

bool speculative_loop::save(lane& one, std::int32_t place) {
  lane* const self = &one;
  return attempt(std::span(&self, 1), [&] { model_.save(one.index, place); });
}

void speculative_loop::prefill(lane& one) {
  auto const& prompt = one.work->wanted().prompt_ids;
  std::int64_t const chunk = model_.get_limits().prefill_chunk;
  std::int64_t const first = one.position;
  std::int64_t const end =
      std::min((first / chunk + 1) * chunk, static_cast<std::int64_t>(prompt.size()));
  auto const rows = std::span(prompt).subspan(static_cast<std::size_t>(first),
                                              static_cast<std::size_t>(end - first));
  bool const last = end == std::ssize(prompt);

  lane* const self = &one;
  attempt(std::span(&self, 1), [&] {
    model::sequence_rows const pass{one.index, first, rows, false,
                                    std::ssize(rows) - (last ? 1 : 0)};
    auto const logits = model_.forward(std::span(&pass, 1));
    one.position = end;
    if (last) {
      std::int32_t const id = one.work->sample(logits, scratch_);
      one.work->add(id);
      one.settled.assign(1, id);
    }
    write_mtp_rows(one, first, end, last);
  });
}

/// The MTP layer over the rows whose next token a chunk [first, end) brought. The row of the token
/// just sampled comes in the first round.
void speculative_loop::write_mtp_rows(lane& one, std::int64_t first, std::int64_t end, bool last) {
  auto const& limits = model_.get_limits();
  bool const drafts = !one.work->ended() && one.depth_at(1) > 0;
  bool const keeps = limits.has_mtp && limits.snapshots > 0 && !last;
  if (!drafts && !keeps) return;
  auto const& prompt = one.work->wanted().prompt_ids;
  std::int64_t const from = std::max<std::int64_t>(first - 1, 0);
  shifted_.assign(prompt.begin() + from + 1, prompt.begin() + end);
  if (shifted_.empty()) return;
  model::draft_rows const rows{one.index, from, shifted_, true, false};
  std::int32_t none = -1;
  model_.draft(std::span(&rows, 1), std::span(&none, 1));
}

void speculative_loop::decode(std::span<lane* const> running) {
  std::int64_t const max_rows = model_.get_limits().max_rows;
  std::int64_t live = 0;
  for (lane const* one : running) live += one->position;
  for (lane* const one : running) one->plan_round(costs_, static_cast<int>(running.size()), live);
  for (auto next = running.begin(); next != running.end();) {
    group_.clear();
    std::int64_t rows = 0;     // of the target
    std::int64_t settled = 0;  // of the MTP layer
    for (; next != running.end(); ++next) {
      int const depth = (*next)->drafts;
      rows += 1 + depth;
      settled += depth > 0 ? std::ssize((*next)->settled) : 0;
      if (std::max(rows, settled) > max_rows) break;
      group_.push_back(*next);
    }
    decode_group();
  }
}

void speculative_loop::decode_group() {
  batch_.clear();
  for (lane const* one : group_) {
    batch_.push_back({one->index, one->position, one->settled, one->drafts, one->work->choice(),
                      one->work->seen()});
  }
  results_.assign(batch_.size(), {});
  if (!attempt(group_, [&] { model_.round(batch_, results_); })) return;
  for (std::size_t i = 0; i < group_.size(); ++i) {
    attempt(std::span(&group_[i], 1), [&] { accept(*group_[i], results_[i]); });
  }
}

/// The token after a row: what the model chose, or by the logits that it gives instead.
std::int32_t speculative_loop::next_token(lane const& one, model::round_result const& got,
                                          std::size_t row) {
  if (!got.chosen.empty()) return checked_token(got.chosen[row]);
  auto const width = static_cast<std::size_t>(model_.get_limits().vocab_size);
  return one.work->sample(got.logits.subspan(row * width, width), scratch_);
}

void speculative_loop::accept(lane& one, model::round_result const& got) {
  std::size_t const drafts = got.drafts.size();
  bool const chooses = one.work->wanted().chooses_depth;
  if (drafts > 0 || !chooses) one.settled.clear();
  std::size_t emitted = 0;
  do {
    one.settled.push_back(next_token(one, got, emitted++));
    one.work->add(one.settled.back());
  } while (!one.work->ended() && emitted <= drafts &&
           one.settled.back() == got.drafts[emitted - 1]);

  // Drafts behind a token that ended the output were never needed, even where they were right.
  std::size_t const accepted = emitted - 1;
  if (drafts > 0) model_.keep(one.index, static_cast<std::int64_t>(emitted));
  one.position += static_cast<std::int64_t>(emitted);
  if (chooses) {
    one.chooser.observe(static_cast<int>(drafts), static_cast<int>(accepted));
    ++one.speculation.rounds_at[one.chosen];
  }

  one.speculation.rounds += 1;
  one.speculation.drafted += static_cast<std::int64_t>(drafts);
  one.speculation.accepted += static_cast<std::int64_t>(accepted);
  for (std::size_t depth = 0; depth < accepted; ++depth) ++one.speculation.accepted_at[depth];
}

}  // namespace qwen38::engine

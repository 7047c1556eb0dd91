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
      one.rows.assign(1, id);
    }
    write_mtp_rows(one, first, end, last);
  });
}

/// The MTP layer over the rows whose next token a chunk [first, end) brought; after the last chunk
/// also over the row of the token just sampled, which gives the first draft.
void speculative_loop::write_mtp_rows(lane& one, std::int64_t first, std::int64_t end, bool last) {
  auto const& limits = model_.get_limits();
  bool const drafts = !one.work->ended() && one.depth_at(1) > 0;
  bool const keeps = limits.has_mtp && limits.snapshots > 0 && !last;
  if (!drafts && !keeps) return;
  auto const& prompt = one.work->wanted().prompt_ids;
  std::int64_t const from = std::max<std::int64_t>(first - 1, 0);
  one.chosen.assign(prompt.begin() + from + 1, prompt.begin() + end);
  if (last) one.chosen.push_back(one.rows.front());
  if (one.chosen.empty()) return;
  model::draft_rows const shifted{one.index, from, one.chosen, true, last};
  std::int32_t draft = -1;
  model_.draft(std::span(&shifted, 1), std::span(&draft, 1));
  if (last) one.rows.push_back(draft);
}

void speculative_loop::decode(std::span<lane* const> running) {
  std::int64_t const max_rows = model_.get_limits().max_rows;
  for (auto next = running.begin(); next != running.end();) {
    group_.clear();
    for (std::int64_t rows = 0; next != running.end(); ++next) {
      rows += 1 + (*next)->depth();
      if (rows > max_rows) break;
      group_.push_back(*next);
    }
    decode_group();
  }
}

void speculative_loop::decode_group() {
  auto const drop_ended = [&] {
    std::erase_if(group_, [](lane const* one) { return one->work->ended(); });
  };
  extend_drafts();
  drop_ended();
  verify();
  drop_ended();
  draft_first();
}

/// Each lane has its first draft, where it may have one; the others follow in single rows, each
/// from the MTP layer's own hidden state before it.
void speculative_loop::extend_drafts() {
  for (int have = 1; have < max_draft_tokens; ++have) {
    drafting_.clear();
    draft_batch_.clear();
    for (lane* const one : group_) {
      if (one->work->ended() || one->depth() <= have) continue;
      drafting_.push_back(one);
      draft_batch_.push_back({one->index, one->position + have - 1,
                              std::span<std::int32_t const>(&one->rows.back(), 1), false, true});
    }
    if (drafting_.empty()) return;
    draft(drafting_);
  }
}

void speculative_loop::verify() {
  if (group_.empty()) return;
  batch_.clear();
  for (lane const* one : group_) {
    batch_.push_back({one->index, one->position, one->rows, one->rows.size() > 1, 0});
  }
  std::span<float const> logits;
  if (!attempt(group_, [&] { logits = model_.forward(batch_); })) return;
  auto const vocab_size = static_cast<std::size_t>(model_.get_limits().vocab_size);
  for (lane* one : group_) {
    auto const mine = logits.first(one->rows.size() * vocab_size);
    logits = logits.subspan(mine.size());
    attempt(std::span(&one, 1), [&] { accept(*one, mine); });
  }
}

void speculative_loop::accept(lane& one, std::span<float const> logits) {
  auto const vocab_size = static_cast<std::size_t>(model_.get_limits().vocab_size);
  std::size_t const rows = one.rows.size();
  one.chosen.clear();
  do {
    auto const row = logits.subspan(one.chosen.size() * vocab_size, vocab_size);
    one.chosen.push_back(one.work->sample(row, scratch_));
    one.work->add(one.chosen.back());
  } while (!one.work->ended() && one.chosen.size() < rows &&
           one.chosen.back() == one.rows[one.chosen.size()]);

  // Drafts behind a token that ended the output were never needed, even where they were right.
  std::size_t const accepted = one.chosen.size() - 1;
  if (rows > 1) model_.keep(one.index, std::ssize(one.chosen));
  one.position += std::ssize(one.chosen);
  one.rows.assign(1, one.chosen.back());

  one.speculation.rounds += 1;
  one.speculation.drafted += static_cast<std::int64_t>(rows) - 1;
  one.speculation.accepted += static_cast<std::int64_t>(accepted);
  for (std::size_t depth = 0; depth < accepted; ++depth) ++one.speculation.accepted_at[depth];
}

/// The MTP layer over the rows that became final, now with the target's hidden states; the last of
/// them gives the first draft of the next round.
void speculative_loop::draft_first() {
  drafting_.clear();
  draft_batch_.clear();
  for (lane* const one : group_) {
    if (one->depth() == 0) continue;
    drafting_.push_back(one);
    draft_batch_.push_back(
        {one->index, one->position - std::ssize(one->chosen), one->chosen, true, true});
  }
  if (!drafting_.empty()) draft(drafting_);
}

/// Runs draft_batch_, whose entries belong to the lanes concerned, and appends the drafts.
void speculative_loop::draft(std::span<lane* const> concerned) {
  drafts_.assign(concerned.size(), -1);
  attempt(concerned, [&] {
    model_.draft(draft_batch_, drafts_);
    for (std::size_t i = 0; i < concerned.size(); ++i) concerned[i]->rows.push_back(drafts_[i]);
  });
}

}  // namespace qwen38::engine

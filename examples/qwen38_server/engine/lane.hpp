// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/depth_chooser.hpp"
#include "engine/generation.hpp"
#include "engine/request.hpp"
#include "model/causal_lm.hpp"

namespace qwen38::engine {

/// Counters of a request that has not run yet.
[[nodiscard]] inline speculation_counts no_rounds(request const& wanted) {
  speculation_counts counts;
  counts.draft_tokens = wanted.draft_tokens;
  counts.chooses_depth = wanted.chooses_depth;
  counts.accepted_at.assign(static_cast<std::size_t>(wanted.draft_tokens), 0);
  return counts;
}

/// One of the model's lanes and where its sequence stands.
struct lane {
  int index = 0;
  generation* work = nullptr;  ///< nullptr: free
  std::int64_t position = 0;   ///< tokens that are final in the model
  /// Tokens of the output that the latest pass gave; the last one is the anchor of the next round.
  /// Empty during prefill. Where rounds without drafts may be followed by others, all tokens since
  /// the latest round with drafts.
  std::vector<std::int32_t> settled;
  depth_chooser chooser;   ///< of a request that chooses its depth
  std::size_t chosen = 0;  ///< by it for the round in hand, a place in model::round_depths
  int drafts = 0;          ///< of the round in hand
  speculation_counts speculation;

  /// The first `cached` tokens of the prompt are there already.
  void begin(generation& next, std::int64_t cached) {
    work = &next;
    position = cached;
    settled.clear();
    chooser = {};
    speculation = no_rounds(next.wanted());
  }

  [[nodiscard]] bool prefilling() const noexcept { return position < work->prompt_tokens(); }

  /// Drafts of a round that begins with `completion_tokens` tokens of output: a round may emit one
  /// token more than it has drafts, and never more than are left.
  [[nodiscard]] int depth_at(std::int64_t completion_tokens) const noexcept {
    std::int64_t const left = work->wanted().max_tokens - completion_tokens;
    return static_cast<int>(std::clamp<std::int64_t>(left - 1, 0, work->wanted().draft_tokens));
  }

  /// Settles the drafts of the next round, in which `lanes` lanes take part that hold `live` tokens
  /// together. costs: needed by requests that choose their depth.
  void plan_round(model::round_costs const* costs, int lanes, std::int64_t live) {
    drafts = depth_at(work->completion_tokens());
    if (!work->wanted().chooses_depth || drafts == 0) return;
    chosen = chooser.choose(*costs, lanes, live, work->wanted().draft_tokens);
    // The MTP layer takes no more at once; the draft also tells whether the text has changed.
    if (chosen == 0 && settled.size() == model::max_settled) chosen = 1;
    drafts = std::min(drafts, model::round_depths[chosen]);
  }
};

}  // namespace qwen38::engine

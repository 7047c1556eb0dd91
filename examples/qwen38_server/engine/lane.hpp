// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/generation.hpp"
#include "engine/request.hpp"

namespace qwen38::engine {

/// Counters of a request that has not run yet.
[[nodiscard]] inline speculation_counts no_rounds(request const& wanted) {
  speculation_counts counts;
  counts.draft_tokens = wanted.draft_tokens;
  counts.accepted_at.assign(static_cast<std::size_t>(wanted.draft_tokens), 0);
  return counts;
}

/// One of the model's lanes and where its sequence stands.
struct lane {
  int index = 0;
  generation* work = nullptr;  ///< nullptr: free
  std::int64_t position = 0;   ///< tokens that are final in the model
  /// Tokens of the output that the latest pass gave; the last one is the anchor of the next round.
  /// Empty during prefill.
  std::vector<std::int32_t> settled;
  speculation_counts speculation;

  /// The first `cached` tokens of the prompt are there already.
  void begin(generation& next, std::int64_t cached) {
    work = &next;
    position = cached;
    settled.clear();
    speculation = no_rounds(next.wanted());
  }

  [[nodiscard]] bool prefilling() const noexcept { return position < work->prompt_tokens(); }

  /// Drafts of a round that begins with `completion_tokens` tokens of output: a round may emit one
  /// token more than it has drafts, and never more than are left.
  [[nodiscard]] int depth_at(std::int64_t completion_tokens) const noexcept {
    std::int64_t const left = work->wanted().max_tokens - completion_tokens;
    return static_cast<int>(std::clamp<std::int64_t>(left - 1, 0, work->wanted().draft_tokens));
  }
  /// Drafts of the next round.
  [[nodiscard]] int depth() const noexcept { return depth_at(work->completion_tokens()); }
};

}  // namespace qwen38::engine

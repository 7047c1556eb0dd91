// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/page_pool.hpp"
#include "engine/prefix_cache.hpp"
#include "model/causal_lm.hpp"

namespace qwen38::engine {

/// What a request holds of the model's memory while it runs, and where it may begin.
struct reservation {
  std::vector<std::int32_t> pages;  ///< of its slots, in order: prompt and max_tokens
  std::int64_t cached = 0;          ///< tokens of the prompt that `snapshot` and the pages save
  std::int32_t snapshot = -1;       ///< to resume from at once: later calls may give it up
  std::int64_t branch = 0;          ///< chunk border where the prompt leaves what is known; 0: none
};

/// Who has which pages and snapshots: the lanes and the prefix cache. Knows nothing of lanes or of
/// time. Without places for snapshots there is no prefix cache.
class sequence_memory {
 public:
  explicit sequence_memory(model::causal_lm::limits const& limits);

  /// Of a sequence of so many tokens. An MTP row lies one slot further on than its position, but
  /// the last token of an answer is in no row at all.
  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const noexcept {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }

  /// Pages for a prompt and an answer, those of its known beginning shared with the cache; gives up
  /// entries of the cache if it must. None, and nothing changed, if what runs leaves too little.
  [[nodiscard]] std::optional<reservation> reserve(std::span<std::int32_t const> prompt,
                                                   std::int64_t max_tokens);
  void release(reservation& held);

  /// Prefill came to a chunk border. Where to save the lane's state, if it is one of the two that
  /// are worth it: the last one before the prompt's last token, from which the next turn goes on,
  /// and the one where the prompt leaves what is known, which other prompts share. Follow with
  /// remember() or forget().
  [[nodiscard]] std::optional<std::int32_t> place_at(reservation const& held,
                                                     std::span<std::int32_t const> prompt,
                                                     std::int64_t position);
  /// The same when the request ends in prefill: any border is worth it, for the retry.
  [[nodiscard]] std::optional<std::int32_t> place_at_end(reservation const& held,
                                                         std::span<std::int32_t const> prompt,
                                                         std::int64_t position);
  void remember(reservation const& held, std::span<std::int32_t const> prompt,
                std::int64_t position, std::int32_t place);
  void forget(std::int32_t place) { cache_.give_back(place); }

  struct counts {
    std::int64_t pages = 0;
    std::int64_t pages_reserved = 0;  ///< held by requests
    std::int64_t pages_cached = 0;    ///< held by the cache alone
    std::int64_t places = 0;
    std::int64_t places_used = 0;
    std::int64_t places_lent = 0;  ///< neither remembered nor forgotten yet
  };
  [[nodiscard]] counts get_counts() const;

 private:
  std::int64_t const page_tokens_;
  std::int64_t const chunk_;
  page_pool pool_;
  prefix_cache cache_;
};

}  // namespace qwen38::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence_memory.hpp"

#include <utility>

namespace qwen38::engine {
namespace {

std::int64_t border_before(std::int64_t position, std::int64_t chunk) {
  return position / chunk * chunk;
}

}  // namespace

sequence_memory::sequence_memory(model::causal_lm::limits const& limits)
    : page_tokens_(limits.page_tokens),
      chunk_(limits.prefill_chunk),
      pool_(limits.kv_pages),
      cache_(pool_, limits.page_tokens, limits.snapshots) {}

std::optional<reservation> sequence_memory::reserve(std::span<std::int32_t const> prompt,
                                                    std::int64_t max_tokens) {
  prefix_cache::match known = cache_.find(prompt);
  std::int64_t const needed = pages_for(std::ssize(prompt) + max_tokens) - std::ssize(known.pages);
  // Shared first: what is shared is not given up below.
  for (std::int32_t page : known.pages) pool_.share(page);
  if (pool_.free() < needed && pool_.free() + cache_.reclaimable() < needed) {
    for (std::int32_t page : known.pages) pool_.release(page);
    return std::nullopt;
  }
  while (pool_.free() < needed) cache_.evict();
  if (known.place >= 0) cache_.use(known.place);

  reservation out;
  out.pages = std::move(known.pages);
  for (std::int64_t i = 0; i < needed; ++i) out.pages.push_back(pool_.take());
  out.cached = known.tokens;
  out.snapshot = known.place;
  std::int64_t const branch = border_before(known.known, chunk_);
  out.branch = branch > known.tokens ? branch : 0;
  return out;
}

void sequence_memory::release(reservation& held) {
  for (std::int32_t page : held.pages) pool_.release(page);
  held = {};
}

std::optional<std::int32_t> sequence_memory::place_at(reservation const& held,
                                                      std::span<std::int32_t const> prompt,
                                                      std::int64_t position) {
  bool const last = position == border_before(std::ssize(prompt) - 1, chunk_);
  if (!last && position != held.branch) return std::nullopt;
  return place_at_end(held, prompt, position);
}

std::optional<std::int32_t> sequence_memory::place_at_end(reservation const& held,
                                                          std::span<std::int32_t const> prompt,
                                                          std::int64_t position) {
  bool const border = position > held.cached && position % chunk_ == 0;
  if (!border || position >= std::ssize(prompt)) return std::nullopt;
  return cache_.place_for(prompt.first(static_cast<std::size_t>(position)));
}

void sequence_memory::remember(reservation const& held, std::span<std::int32_t const> prompt,
                               std::int64_t position, std::int32_t place) {
  cache_.insert(prompt.first(static_cast<std::size_t>(position)), held.pages, place);
}

sequence_memory::counts sequence_memory::get_counts() const {
  counts out;
  out.pages = pool_.size();
  out.pages_cached = cache_.pages_alone();
  out.pages_reserved = pool_.size() - pool_.free() - out.pages_cached;
  out.places = cache_.places();
  out.places_used = cache_.places_used();
  out.places_lent = cache_.places_lent();
  return out;
}

}  // namespace qwen38::engine

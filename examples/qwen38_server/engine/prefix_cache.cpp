// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.hpp"

#include <algorithm>
#include <cstddef>

namespace qwen38::engine {

struct prefix_cache::block {
  block* parent = nullptr;
  key const* ids = nullptr;  // the parent's key for this block
  std::int64_t depth = 0;    // tokens up to its end
  std::int32_t page = -1;
  std::int32_t place = -1;  // of the snapshot after its last token
  std::int64_t worth = 0;   // of the snapshot
  std::int64_t used = 0;    // when, by the cache's clock
  std::map<key, std::unique_ptr<block>> children;

  [[nodiscard]] block* child(std::span<std::int32_t const> wanted) const {
    auto const found = children.find(key(wanted.begin(), wanted.end()));
    return found == children.end() ? nullptr : found->second.get();
  }
};

prefix_cache::prefix_cache(page_pool& pool, std::int32_t page_tokens, std::int32_t places)
    : pool_(pool),
      page_tokens_(static_cast<std::size_t>(page_tokens)),
      root_(std::make_unique<block>()),
      by_place_(static_cast<std::size_t>(places), nullptr) {
  for (std::int32_t place = places; place > 0; --place) free_places_.push_back(place - 1);
}

prefix_cache::~prefix_cache() = default;

prefix_cache::match prefix_cache::find(std::span<std::int32_t const> ids) const {
  match out;
  std::vector<std::int32_t> pages;
  block const* at = root_.get();
  while (ids.size() > page_tokens_) {
    at = at->child(ids.first(page_tokens_));
    if (at == nullptr) break;
    ids = ids.subspan(page_tokens_);
    pages.push_back(at->page);
    out.known = at->depth;
    if (at->place < 0) continue;
    out.tokens = at->depth;
    out.place = at->place;
    out.pages = pages;
  }
  return out;
}

prefix_cache::block const* prefix_cache::walk(std::span<std::int32_t const> ids) const {
  block const* at = root_.get();
  for (; at != nullptr && !ids.empty(); ids = ids.subspan(page_tokens_)) {
    at = at->child(ids.first(page_tokens_));
  }
  return at;
}

void prefix_cache::touch(block& at) {
  at.worth = age_ + at.depth;
  at.used = ++clock_;
}

void prefix_cache::use(std::int32_t place) {
  touch(*by_place_[static_cast<std::size_t>(place)]);
}

bool prefix_cache::less_worth(block const& a, block const& b) const {
  return a.worth != b.worth ? a.worth < b.worth : a.used < b.used;
}

std::optional<std::int32_t> prefix_cache::place_for(std::span<std::int32_t const> ids) {
  if (block const* const there = walk(ids); there != nullptr && there->place >= 0) {
    use(there->place);
    return std::nullopt;
  }
  if (by_place_.empty()) return std::nullopt;
  if (free_places_.empty()) {
    block const* least = nullptr;
    for (block const* one : by_place_) {
      if (one != nullptr && (least == nullptr || less_worth(*one, *least))) least = one;
    }
    if (least == nullptr) return std::nullopt;
    std::int64_t const worth = age_ + std::ssize(ids);
    if (worth < least->worth) {
      age_ = worth;
      return std::nullopt;
    }
    age_ = least->worth;
    drop_snapshot(*by_place_[static_cast<std::size_t>(least->place)]);
  }
  std::int32_t const place = free_places_.back();
  free_places_.pop_back();
  return place;
}

void prefix_cache::insert(std::span<std::int32_t const> ids, std::span<std::int32_t const> pages,
                          std::int32_t place) {
  block* at = root_.get();
  for (std::size_t i = 0; i * page_tokens_ < ids.size(); ++i) {
    auto const wanted = ids.subspan(i * page_tokens_, page_tokens_);
    block* next = at->child(wanted);
    if (next == nullptr) {
      auto const [where, fresh] =
          at->children.emplace(key(wanted.begin(), wanted.end()), std::make_unique<block>());
      next = where->second.get();
      next->parent = at;
      next->ids = &where->first;
      next->depth = at->depth + std::ssize(wanted);
      next->page = pages[i];
      pool_.share(next->page);
    }
    at = next;
  }
  at->place = place;
  by_place_[static_cast<std::size_t>(place)] = at;
  touch(*at);
}

/// Frees the snapshot's place and every block that is of no use without it.
void prefix_cache::drop_snapshot(block& at) {
  by_place_[static_cast<std::size_t>(at.place)] = nullptr;
  free_places_.push_back(at.place);
  at.place = -1;
  block* leaf = &at;
  while (leaf != root_.get() && leaf->place < 0 && leaf->children.empty()) {
    pool_.release(leaf->page);
    block* const parent = leaf->parent;
    parent->children.erase(parent->children.find(*leaf->ids));
    leaf = parent;
  }
}

bool prefix_cache::frees_pages(block const& at) const {
  return at.children.empty() && pool_.holders(at.page) == 1;
}

std::int64_t prefix_cache::reclaimable() const {
  std::int64_t sum = 0;
  // Whether all blocks from `at` on can go.
  auto const count = [&](auto const& self, block const& at) -> bool {
    bool all = true;
    for (auto const& [ids, child] : at.children) all = self(self, *child) && all;
    all = all && at.page >= 0 && pool_.holders(at.page) == 1;
    sum += all ? 1 : 0;
    return all;
  };
  count(count, *root_);
  return sum;
}

void prefix_cache::evict() {
  block* least = nullptr;
  for (block* one : by_place_) {
    if (one == nullptr || !frees_pages(*one)) continue;
    if (least == nullptr || less_worth(*one, *least)) least = one;
  }
  if (least == nullptr) throw error(error_kind::internal, "prefix_cache: nothing frees a page");
  age_ = std::max(age_, least->worth);
  drop_snapshot(*least);
}

std::int64_t prefix_cache::places_used() const noexcept {
  return std::ranges::count_if(by_place_, [](block const* one) { return one != nullptr; });
}

std::int64_t prefix_cache::pages_alone() const {
  auto const count = [&](auto const& self, block const& at) -> std::int64_t {
    std::int64_t sum = at.page >= 0 && pool_.holders(at.page) == 1 ? 1 : 0;
    for (auto const& [ids, child] : at.children) sum += self(self, *child);
    return sum;
  };
  return count(count, *root_);
}

}  // namespace qwen38::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/page_pool.hpp"

namespace qwen38::engine {

/// Beginnings of prompts whose state is still there: a tree over blocks of page_tokens ids, each
/// with the page that holds its keys and values, some with a snapshot of the recurrent state after
/// their last token. Ids are compared one by one. A block without a snapshot at or below it is of
/// no use and leaves the tree.
///
/// What is given up first: every snapshot has a worth, the age of the cache when it was last used
/// plus the tokens that it saves; the least worth goes, of equal ones the one not used for longer,
/// and the cache's age becomes that worth. A newcomer that is worth less than all others is not
/// taken, and ages the cache all the same. So a long conversation stays until the prompts that came
/// in between add up to about as many tokens as it saves, in each place; and nothing stays forever.
class prefix_cache {
 public:
  /// `pool` must outlive this object.
  prefix_cache(page_pool& pool, std::int32_t page_tokens, std::int32_t places);
  ~prefix_cache();
  prefix_cache(prefix_cache const&) = delete;
  prefix_cache& operator=(prefix_cache const&) = delete;

  struct match {
    std::int64_t tokens = 0;          ///< that the deepest snapshot on the way saves
    std::int32_t place = -1;          ///< of that snapshot; -1: there is none
    std::vector<std::int32_t> pages;  ///< of these tokens
    std::int64_t known = 0;           ///< tokens of the whole way, with or without a snapshot
  };
  /// The longest known beginning of `ids`, at least one id shorter than they are.
  [[nodiscard]] match find(std::span<std::int32_t const> ids) const;

  /// A snapshot was taken up again.
  void use(std::int32_t place);

  /// Where to save the state after `ids`, a number of whole blocks. None if that state is there
  /// already, or is not worth a place. Follow with insert() or give_back().
  [[nodiscard]] std::optional<std::int32_t> place_for(std::span<std::int32_t const> ids);
  /// The state after `ids` was saved to the place. Holds the pages of blocks that are new.
  void insert(std::span<std::int32_t const> ids, std::span<std::int32_t const> pages,
              std::int32_t place);
  /// The place stays empty.
  void give_back(std::int32_t place) { free_places_.push_back(place); }

  /// Pages that evict() can free: held by nobody else, nor any block behind them.
  [[nodiscard]] std::int64_t reclaimable() const;
  /// Gives up the snapshot that is worth least of those that free a page.
  void evict();

  [[nodiscard]] std::int64_t places() const noexcept { return std::ssize(by_place_); }
  [[nodiscard]] std::int64_t places_used() const noexcept;
  /// Places that place_for() gave out and that neither insert() nor give_back() has had since.
  [[nodiscard]] std::int64_t places_lent() const noexcept {
    return places() - places_used() - std::ssize(free_places_);
  }
  /// Pages that nobody else holds.
  [[nodiscard]] std::int64_t pages_alone() const;

 private:
  struct block;
  using key = std::vector<std::int32_t>;

  [[nodiscard]] block const* walk(std::span<std::int32_t const> ids) const;
  void touch(block& at);
  void drop_snapshot(block& at);
  [[nodiscard]] bool less_worth(block const& a, block const& b) const;
  [[nodiscard]] bool frees_pages(block const& at) const;

  page_pool& pool_;
  std::size_t const page_tokens_;
  std::unique_ptr<block> const root_;
  std::vector<block*> by_place_;  // null: no snapshot there
  std::vector<std::int32_t> free_places_;
  std::int64_t age_ = 0;
  std::int64_t clock_ = 0;  // counts uses
};

}  // namespace qwen38::engine

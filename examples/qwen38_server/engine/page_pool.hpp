// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/error.hpp"

namespace qwen38::engine {

/// Which pages of the KV cache are free, and how many hold each of the others: a lane, the prefix
/// cache, or several.
class page_pool {
 public:
  explicit page_pool(std::int32_t pages) : holders_(static_cast<std::size_t>(pages), 0) {
    free_.reserve(holders_.size());
    for (std::int32_t page = pages; page > 0; --page) free_.push_back(page - 1);
  }

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(holders_); }
  [[nodiscard]] std::int64_t free() const noexcept { return std::ssize(free_); }
  [[nodiscard]] std::int32_t holders(std::int32_t page) const {
    return holders_[static_cast<std::size_t>(page)];
  }

  /// A free page for one holder. There must be one.
  [[nodiscard]] std::int32_t take() {
    if (free_.empty()) throw error(error_kind::internal, "page_pool: no page is free");
    std::int32_t const page = free_.back();
    free_.pop_back();
    holders_[static_cast<std::size_t>(page)] = 1;
    return page;
  }
  /// One holder more.
  void share(std::int32_t page) {
    check_held(page);
    ++holders_[static_cast<std::size_t>(page)];
  }
  /// One holder fewer; without any the page is free.
  void release(std::int32_t page) {
    check_held(page);
    if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  }

 private:
  void check_held(std::int32_t page) const {
    if (page < 0 || page >= size() || holders(page) == 0) {
      throw error(error_kind::internal, "page_pool: a page that nobody holds");
    }
  }

  std::vector<std::int32_t> free_;     // the last one is taken next
  std::vector<std::int32_t> holders_;  // by page
};

}  // namespace qwen38::engine

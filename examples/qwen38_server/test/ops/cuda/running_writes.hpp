// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace qwen38::test {

/// What launches write that may still run when the next one begins: all since the last border
/// (device::note_border), or since something else than a launch.
class running_writes {
 public:
  void clear() {
    words_.clear();
    ranges_.clear();
  }
  void add(void const* p, std::size_t bytes) {
    for (std::uintptr_t word = first_word(p); word < end_word(p, bytes); ++word) {
      words_.insert(word);
    }
  }
  void add_range(void const* p, std::size_t bytes) {
    ranges_.emplace_back(first_word(p), end_word(p, bytes));
  }
  void add(running_writes const& other) { words_.insert(other.words_.begin(), other.words_.end()); }
  [[nodiscard]] bool holds(void const* p, std::size_t bytes) const {
    for (std::uintptr_t word = first_word(p); word < end_word(p, bytes); ++word) {
      if (words_.contains(word)) return true;
      for (auto const& [first, end] : ranges_) {
        if (word >= first && word < end) return true;
      }
    }
    return false;
  }

 private:
  static constexpr std::uintptr_t word_bytes = 4;

  static std::uintptr_t first_word(void const* p) {
    return reinterpret_cast<std::uintptr_t>(p) / word_bytes;
  }
  static std::uintptr_t end_word(void const* p, std::size_t bytes) {
    return (reinterpret_cast<std::uintptr_t>(p) + bytes + word_bytes - 1) / word_bytes;
  }

  std::unordered_set<std::uintptr_t> words_;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges_;  ///< of products
};

}  // namespace qwen38::test

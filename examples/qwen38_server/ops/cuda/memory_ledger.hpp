// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace qwen38::ops::cuda {

/// Places of allocations in one piece of memory, by first fit: what is asked for in the same order
/// lies in the same places, whatever the memory is. So a device that only counts finds out how
/// large the piece must be in which a real one will do the same work.
class memory_ledger {
 public:
  static constexpr std::size_t alignment = 256;

  /// The offset of a new allocation; `use` names what for.
  [[nodiscard]] std::size_t take(std::size_t bytes, std::string const& use);
  void give_back(std::size_t offset) noexcept;

  /// Bytes taken, each allocation rounded up to `alignment`.
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }
  /// The furthest end of any allocation so far: the size of the piece of memory.
  [[nodiscard]] std::size_t extent() const noexcept { return extent_; }
  /// Bytes taken now, by use.
  [[nodiscard]] std::map<std::string, std::size_t> const& by_use() const noexcept {
    return by_use_;
  }

 private:
  struct place {
    std::size_t bytes = 0;  ///< rounded up
    std::string use;
  };

  std::map<std::size_t, place> places_;       // by offset
  std::map<std::size_t, std::size_t> holes_;  // free bytes below the last allocation, by offset
  std::map<std::string, std::size_t> by_use_;
  std::size_t end_ = 0;  // of the last allocation
  std::size_t taken_ = 0;
  std::size_t extent_ = 0;
};

}  // namespace qwen38::ops::cuda

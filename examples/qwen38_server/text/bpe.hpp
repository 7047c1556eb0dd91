// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qwen38::text {

/// Byte-level byte-pair encoding of one word: starting from one token per byte, the pair with the
/// lowest rank is merged until none is left; of equal ranks the leftmost first. O(n log n) for n
/// bytes.
class bpe {
 public:
  /// left + right -> product; the rank is the place in the list.
  struct merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t product;
  };

  /// Working memory, to be reused between words of one thread.
  struct scratch {
    struct symbol {
      std::int32_t id;
      std::uint32_t previous;
      std::uint32_t next;
      std::uint32_t rank;  // of the pair (this, next); no_rank if it does not merge
    };
    std::vector<symbol> symbols;
    std::vector<std::uint64_t>
        heap;  // rank << 32 | index of the pair's left symbol; smallest on top
  };

  /// byte_ids: token of each byte. merges: no pair twice.
  bpe(std::array<std::int32_t, 256> const& byte_ids, std::span<merge const> merges);

  /// Appends the tokens of `word` (any bytes, fewer than 2^32 - 1) to `out`.
  void encode(std::string_view word, scratch& work, std::vector<std::int32_t>& out) const;

 private:
  struct ranked {
    std::uint32_t rank;
    std::int32_t product;
  };
  [[nodiscard]] static std::uint64_t key(std::int32_t left, std::int32_t right) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  void rank_pair(std::uint32_t index, scratch& work) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::unordered_map<std::uint64_t, ranked> merges_;
};

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace qwen38::engine {

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011): a bijection of the 128-bit counter for each 64-bit key. Words of lower index
/// are the less significant ones.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53U} * counter[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// What a random number is for: numbers of two purposes are independent.
enum class random_purpose : std::uint32_t { next_token = 1 };

/// 64 uniform bits that depend on nothing but the arguments: not on the batch, on speculation, or
/// on how many numbers were drawn before.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::int64_t position,
                                                  random_purpose purpose) noexcept {
  auto const p = static_cast<std::uint64_t>(position);
  auto const words =
      philox4x32({static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32),
                  static_cast<std::uint32_t>(purpose), 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

__extension__ using uint128 = unsigned __int128;

/// floor(limit * bits / 2^64): uniform in [0, limit) if bits are uniform.
[[nodiscard]] constexpr std::uint64_t scale_bits(std::uint64_t bits, std::uint64_t limit) noexcept {
  return static_cast<std::uint64_t>((static_cast<uint128>(bits) * limit) >> 64);
}

}  // namespace qwen38::engine

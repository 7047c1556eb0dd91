// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/config.hpp>

namespace qwen38::ops {

__extension__ using uint128 = unsigned __int128;

struct philox_words {
  std::uint32_t w[4];
};

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011): a bijection of the 128-bit counter for each 64-bit key. Words of lower index
/// are the less significant ones.
[[nodiscard]] QPN_HD constexpr philox_words philox4x32(philox_words counter, std::uint32_t key0,
                                                       std::uint32_t key1) noexcept {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53U} * counter.w[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57U} * counter.w[2];
    counter = {
        {static_cast<std::uint32_t>(b >> 32) ^ counter.w[1] ^ key0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ counter.w[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

/// What a random number is for: numbers of two purposes are independent.
enum class random_purpose : std::uint32_t { next_token = 1 };

/// 64 uniform bits that depend on nothing but the arguments: not on the batch, on speculation, or
/// on how many numbers were drawn before.
[[nodiscard]] QPN_HD constexpr std::uint64_t random_bits(std::uint64_t seed, std::int64_t position,
                                                         random_purpose purpose) noexcept {
  auto const p = static_cast<std::uint64_t>(position);
  philox_words const words =
      philox4x32({{static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32),
                   static_cast<std::uint32_t>(purpose), 0}},
                 static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return std::uint64_t{words.w[1]} << 32 | words.w[0];
}

/// The upper 64 bits of a product: floor(limit * bits / 2^64), uniform in [0, limit) if bits are.
[[nodiscard]] QPN_HD constexpr std::uint64_t scale_bits(std::uint64_t bits,
                                                        std::uint64_t limit) noexcept {
  return static_cast<std::uint64_t>((static_cast<uint128>(bits) * limit) >> 64);
}

}  // namespace qwen38::ops

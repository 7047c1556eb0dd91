// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/config.hpp>

#include "ops/random.hpp"

// How a token is chosen from a row of logits l, in terms that are the same bits on every device.
// The temperature is t, the largest logit m, and a token's distance (m - l) / t log2(e) binary
// digits below the likeliest, kept with 48 bits behind the point. Its mass is 2^(44 - distance),
// rounded down, so that sums are exact and the same in any order.

namespace qwen38::ops {

inline constexpr float greedy_below = 1e-5F;
inline constexpr std::uint64_t full_mass = std::uint64_t{1} << 44;  ///< of the likeliest token
/// So many tokens of full_mass still add up in 64 bits.
inline constexpr std::int64_t max_candidates = std::int64_t{1} << 19;
/// The largest distance at which a token has mass.
inline constexpr std::uint64_t full_reach = std::uint64_t{44} << 48;

/// An id of a prompt or an output, and how often it is in the output: 0 of one that is in the
/// prompt alone.
struct token_count {
  std::int32_t id = 0;
  std::int32_t count = 0;
};

/// Most ids with their counts that a row may be chosen by.
inline constexpr std::int32_t max_seen = 32768;

/// What ids that were seen lose, in this order:
///   l = l > 0 ? l / repetition : l * repetition    those of prompt and output
///   l = l - frequency count - presence             those of the output
/// each step rounded to fp32 and kept finite.
struct token_penalties {
  float repetition = 1;
  float frequency = 0;
  float presence = 0;

  [[nodiscard]] QPN_HD constexpr bool any() const noexcept {
    return repetition != 1 || frequency != 0 || presence != 0;
  }
};

/// The logit of an id that was seen; one that is not finite stays what it is.
[[nodiscard]] QPN_HD constexpr float penalised_logit(float logit, token_penalties const& by,
                                                     std::int32_t count) noexcept {
  constexpr float largest = 3.402823466e+38F;
  auto const finite = [](float x) { return x < -largest ? -largest : x > largest ? largest : x; };
  if (logit - logit != 0.0F) return logit;
  logit = finite(logit > 0 ? logit / by.repetition : logit * by.repetition);
  if (count == 0) return logit;
  float const often = by.frequency * static_cast<float>(count);
  return finite(finite(logit - often) - by.presence);
}

/// After the penalties of ids that were seen, what is kept, in this order: tokens within reach; of
/// these the top_k likeliest, the lower id before where logits are equal; of these the shortest
/// beginning with at least the share top_p of their mass, never empty. One is drawn, by
/// random_bits(seed, position), with its mass. Below a temperature of greedy_below it is the
/// largest logit, the lowest id of equal ones.
struct token_choice {
  float temperature = 0;
  float top_p = 1;
  std::int32_t top_k = 0;  ///< 0: all
  std::uint64_t reach = full_reach;
  std::uint64_t seed = 0;
  token_penalties penalties = {};

  [[nodiscard]] QPN_HD constexpr bool is_greedy() const noexcept {
    return temperature < greedy_below;
  }
};

/// For one row.
struct row_choice {
  token_choice how;
  std::int64_t position = 0;  ///< of the token that is chosen
};

/// The distance of a token; above full_reach, and no more than that, where it is larger.
[[nodiscard]] QPN_HD constexpr std::uint64_t token_distance(float logit, float largest,
                                                            float temperature) noexcept {
  constexpr double digits_of_one = 406082553034799.88;  // log2(e) 2^48
  double const below = (static_cast<double>(largest) - static_cast<double>(logit)) /
                       static_cast<double>(temperature);
  double const distance = below * digits_of_one;
  return distance <= static_cast<double>(full_reach) ? static_cast<std::uint64_t>(distance)
                                                     : full_reach + 1;
}

/// The mass at a distance of at most full_reach. 2^-f for the fraction f of the distance is its
/// Taylor series in 64-bit fixed point, whose terms ln(2)^n f^n / n! are below 2^-57 from n = 17.
[[nodiscard]] QPN_HD constexpr std::uint64_t token_mass(std::uint64_t distance) noexcept {
  std::uint64_t const f = distance << 16;
  std::uint64_t sum = 0x9c7;
  auto const add = [&](std::uint64_t coefficient) { sum = coefficient - scale_bits(sum, f); };
  add(0xe1b7);
  add(0x131496);
  add(0x1816193);
  add(0x1c3bd651);
  add(0x1e8cac735);
  add(0x1e4cf5158c);
  add(0x1b5253d395e);
  add(0x162c0223a5c8);
  add(0xffe5fe2c4586);
  add(0xa184897c363c4);
  add(0x5761ff9e299cc4);
  add(0x276556df749cee5);
  add(0xe35846b82505fc6);
  add(0x3d7f7bff058b1d51);
  add(0xb17217f7d1cf79ac);
  std::uint64_t const power = (std::uint64_t{1} << 63) - scale_bits(sum, f) / 2;
  return power >> (63 - 44 + (distance >> 48));
}

/// The mass that top_p wants of a total, 1 to the total.
[[nodiscard]] QPN_HD constexpr std::uint64_t wanted_mass(float top_p,
                                                         std::uint64_t total) noexcept {
  double const share = static_cast<double>(top_p) * static_cast<double>(total);
  auto wanted = static_cast<std::uint64_t>(share);
  if (static_cast<double>(wanted) < share) ++wanted;
  if (wanted < 1) return 1;
  return wanted < total ? wanted : total;
}

}  // namespace qwen38::ops

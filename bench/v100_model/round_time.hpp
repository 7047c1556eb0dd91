// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "round_launches.hpp"

// The time of a round, launch by launch: one after the other, with the gaps of a graph.

namespace qpn::bench::v100 {

inline constexpr int round_parts = 6;
inline constexpr int round_phases = 4;

struct round_time {
  round_shape shape;
  std::array<double, round_parts> part_us{};    ///< by round_part, without gaps
  std::array<double, round_phases> phase_us{};  ///< by round_phase, with gaps
  double gaps_us = 0;
  double host_us = 0;
  std::int64_t launches = 0;
  std::int64_t products = 0;  ///< of the launches
  std::int64_t hops = 0;      ///< from rank to rank, one after the other

  [[nodiscard]] double ms() const;
};

/// Microseconds of a launch that is no product, its gap included.
[[nodiscard]] double kernel_us(kernel_work const& work);

/// Times of launches; products are simulated once for each weight and number of rows.
class round_timer {
 public:
  round_timer(sass_table const& table, fitted_constants const& constants)
      : table_(table), constants_(constants) {}

  /// With its gap.
  [[nodiscard]] double launch_us(round_launch const& launch);
  [[nodiscard]] round_time time(rank_model const& model, round_shape const& shape);

 private:
  sass_table const& table_;
  fitted_constants constants_;
  std::map<std::tuple<format_id, std::int64_t, std::int64_t, std::int64_t>, double> products_;
};

/// The round after one whose drafts were all accepted.
[[nodiscard]] constexpr round_shape full_round(int drafts, std::int64_t context) noexcept {
  return {drafts, drafts + 1, context};
}

inline constexpr std::array<int, 4> round_depths = {0, 3, 7, 15};
inline constexpr std::int64_t round_context = 512;
inline constexpr double round_limit_ms = 16;  ///< at round_limit_drafts and round_context
inline constexpr int round_limit_drafts = 7;

/// Milliseconds that the predecessor measured for a round at a short context.
[[nodiscard]] std::optional<double> predecessor_round_ms(int drafts) noexcept;

/// What it measured of its parts at k = 7, in ms.
struct predecessor_part {
  char const* what;
  double ms;
};
[[nodiscard]] std::span<predecessor_part const> predecessor_parts();

/// Sentences about what the rounds do not keep of the project's limits.
[[nodiscard]] std::vector<std::string> missed_round_limits(std::span<round_time const> rounds);

}  // namespace qpn::bench::v100

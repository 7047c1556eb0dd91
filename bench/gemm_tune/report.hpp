// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/gemm_choice.hpp>
#include <string>
#include <vector>

#include "support/model_shapes.hpp"
#include "support/run_context.hpp"
#include "support/statistics.hpp"

namespace qpn::bench::tune {

/// A choice and what a launch of it takes.
struct timed_choice {
  gemm_choice choice;
  /// One for each turn, in which all choices were timed; a single one where that was already much
  /// slower than the fastest.
  std::vector<double> turns;

  [[nodiscard]] double us() const { return median(turns); }
};

/// All choices of one call: [0] is that of the rules. They have given right results.
struct tuned_call {
  model_shape shape;
  std::int64_t first_m = 0;  ///< of calls that the times stand for
  std::int64_t m = 0;        ///< the last of them, which was measured
  std::vector<timed_choice> choices;

  [[nodiscard]] timed_choice const& rule() const { return choices.front(); }
  /// The fastest of those with as many turns as the rules' choice.
  [[nodiscard]] timed_choice const& best() const;
  /// The part of the rules' time that it saves: the median over the turns.
  [[nodiscard]] double gain() const;
  /// The spread of the turns' ratios of both times.
  [[nodiscard]] double noise() const;
  /// Whether it belongs into a table: the gain is above 2 % and above the noise.
  [[nodiscard]] bool is_worth_a_row() const;
  [[nodiscard]] gemm_tuning_row row() const;
};

struct report {
  run_context context;
  std::vector<tuned_call> calls;
};

/// An array of {shape, format, n, k, first_m, m, rule, rule_us, best, best_us, gain, noise, row,
/// choices, device, clocks, toolkit, command}.
[[nodiscard]] std::string json_of(report const& measured);

/// A line for each call.
[[nodiscard]] std::string markdown_of(report const& measured);

}  // namespace qpn::bench::tune

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/round_costs.hpp"

namespace qwen38::engine {

/// Chooses how many tokens one request drafts in its next round: the k of model::round_depths with
/// the most tokens a millisecond, the smaller of equal ones:
///
///     (1 + a1 + a1 a2 + ... + a1 a2 .. ak) / costs.ms(k, lanes, live)
///
/// where a_d is the share of drafts at depth d that were accepted of those whose predecessors in
/// the round were. It begins as first_share, which counts as prior_drafts drafts, and is a plain
/// mean until 1 / slowest drafts; from then on each one weighs `slowest`. A round whose drafts are
/// all right takes the shares of the depths beyond towards that of its deepest draft, by `drift`,
/// so that they are tried again.
///
/// A function of the request's own rounds, of the lanes and of a fixed table, not of time.
class depth_chooser {
 public:
  static constexpr double first_share = 0.8;
  static constexpr int prior_drafts = 2;
  static constexpr double slowest = 1.0 / 16;
  static constexpr double drift = 1.0 / 2;

  depth_chooser() {
    share_.fill(first_share);
    seen_.fill(prior_drafts);
  }

  /// A place in model::round_depths, of a depth of at most `most`. lanes: of the round; live:
  /// tokens that they hold together.
  [[nodiscard]] std::size_t choose(model::round_costs const& costs, int lanes, std::int64_t live,
                                   int most) const;

  /// The round before had so many drafts, and the first `accepted` of them were right.
  void observe(int drafts, int accepted);

 private:
  static constexpr int most_drafts = model::round_depths.back();

  std::array<double, most_drafts> share_;  ///< of depth 1, 2, ...
  std::array<int, most_drafts> seen_;
};

}  // namespace qwen38::engine

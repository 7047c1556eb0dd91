// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace qwen38::model {

/// Draft depths that rounds are recorded for.
inline constexpr std::array<int, 5> round_depths = {0, 1, 3, 7, 15};

/// What rounds of a model take on its device, by draft depth, lanes and live context. A table:
/// measured once, then only read, so that what is chosen by it can be chosen again.
struct round_costs {
  struct point {
    int lanes = 1;
    double ms = 0;
  };
  struct depth {
    std::vector<point> points;  ///< at a short context, ascending in lanes; at least one
    double ms_per_token = 0;    ///< of live context, all lanes' together
  };
  std::array<depth, round_depths.size()> of;  ///< in the order of round_depths
  int max_rows = 96;                          ///< of a pass

  /// Milliseconds of a round in which `lanes` lanes make round_depths[place] drafts each and hold
  /// `live` tokens together. Between measured lanes, and beyond, on a straight line; lanes whose
  /// rows do not fit one pass take several rounds.
  [[nodiscard]] double ms(std::size_t place, int lanes, double live) const {
    int const fit = std::max(1, max_rows / (round_depths[place] + 1));
    double sum = of[place].ms_per_token * live;
    for (int left = lanes; left > 0; left -= fit) sum += line(of[place], std::min(left, fit));
    return sum;
  }

 private:
  static double line(depth const& one, int lanes) {
    auto const& points = one.points;
    if (points.size() == 1) return points.front().ms;
    std::size_t last = 1;
    while (last + 1 < points.size() && points[last].lanes < lanes) ++last;
    point const& a = points[last - 1];
    point const& b = points[last];
    return a.ms + (b.ms - a.ms) * (lanes - a.lanes) / (b.lanes - a.lanes);
  }
};

}  // namespace qwen38::model

// SPDX-License-Identifier: Apache-2.0
#include "engine/depth_chooser.hpp"

#include <algorithm>

namespace qwen38::engine {

std::size_t depth_chooser::choose(model::round_costs const& costs, int lanes, std::int64_t live,
                                  int most) const {
  double tokens = 1;
  double reached = 1;  // probability that all drafts so far are right
  double best_rate = 0;
  std::size_t best = 0;
  std::size_t depth = 0;
  for (std::size_t place = 0; place < model::round_depths.size(); ++place) {
    if (model::round_depths[place] > most) break;
    for (; depth < static_cast<std::size_t>(model::round_depths[place]); ++depth) {
      reached *= share_[depth];
      tokens += reached;
    }
    double const rate = tokens / costs.ms(place, lanes, static_cast<double>(live));
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = place;
  }
  return best;
}

void depth_chooser::observe(int drafts, int accepted) {
  if (drafts == 0) return;
  auto const tried = static_cast<std::size_t>(drafts);
  auto const right = static_cast<std::size_t>(accepted);
  for (std::size_t i = 0; i < std::min(right + 1, tried); ++i) {
    double const weight = std::max(slowest, 1.0 / ++seen_[i]);
    share_[i] += weight * ((i < right ? 1.0 : 0.0) - share_[i]);
  }
  if (right < tried) return;
  for (std::size_t i = tried; i < share_.size(); ++i) {
    share_[i] += drift * (share_[tried - 1] - share_[i]);
  }
}

}  // namespace qwen38::engine

// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "simulation.hpp"

namespace qpn::bench::v100 {

namespace {

double rounded(double x) {
  return std::round(x * 100) / 100;
}

}  // namespace

double model_timing(published_timing const& timing, fitted_constants const& constants) {
  double us = 0;
  for (predecessor_shape const& shape : timing.shapes) {
    us += simulate(make_predecessor_launch(timing.kernel, shape, timing.m), constants);
  }
  return us;
}

double log_error(std::span<published_timing const> timings, bool in_fit,
                 fitted_constants const& constants) {
  double sum = 0;
  int count = 0;
  for (published_timing const& timing : timings) {
    if (timing.in_fit != in_fit) continue;
    double const error = std::log(model_timing(timing, constants) / timing.us);
    sum += error * error;
    ++count;
  }
  return std::sqrt(sum / count);
}

fitted_constants fit_constants(std::span<published_timing const> timings) {
  constexpr int steps = 3;  // to each side of the middle
  constexpr fitted_constants least_step{0.02, 0.1};
  fitted_constants best{3, 6};
  for (double scale = 32; scale >= 1; scale /= 2) {
    fitted_constants const middle = best;
    double least = log_error(timings, true, best);
    for (int i = -steps; i <= steps; ++i) {
      for (int j = -steps; j <= steps; ++j) {
        fitted_constants const one{
            std::max(0.0, middle.launch_us + i * scale * least_step.launch_us),
            std::max(1.0, middle.interference + j * scale * least_step.interference)};
        double const error = log_error(timings, true, one);
        if (error < least) {
          least = error;
          best = one;
        }
      }
    }
  }
  return {rounded(best.launch_us), rounded(best.interference)};
}

}  // namespace qpn::bench::v100

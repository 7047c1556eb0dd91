// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace qpn::bench {

/// The middle value, of an even number of them the mean of the two. Throws std::invalid_argument
/// where there is none.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("median: there are no values");
  std::sort(values.begin(), values.end());
  std::size_t const half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

/// How far apart the middle half of the values lies, as a part of the median (> 0). Throws
/// std::invalid_argument where there is none.
[[nodiscard]] inline double spread(std::vector<double> values) {
  double const middle = median(values);
  std::sort(values.begin(), values.end());
  std::size_t const quarter = values.size() / 4;
  return (values[values.size() - 1 - quarter] - values[quarter]) / middle;
}

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qpn::test {

/// The list that a row of values must give, -0 as +0 and every NaN as one.
struct expected_list {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
};

[[nodiscard]] inline expected_list expected_candidates(float const* row, std::int64_t n, int c,
                                                       std::int32_t first_id,
                                                       std::int32_t id_limit) {
  std::vector<std::int64_t> columns;
  for (std::int64_t j = 0; j < n && first_id + j < id_limit; ++j) columns.push_back(j);
  std::stable_sort(columns.begin(), columns.end(), [row](std::int64_t a, std::int64_t b) {
    if (std::isnan(row[a]) || std::isnan(row[b])) return std::isnan(row[a]) && !std::isnan(row[b]);
    return row[a] > row[b];
  });
  expected_list list;
  for (std::size_t place = 0; place < static_cast<std::size_t>(c); ++place) {
    bool const filled = place < columns.size();
    float const value = filled ? row[columns[place]] : -INFINITY;
    list.ids.push_back(filled ? static_cast<std::int32_t>(first_id + columns[place]) : -1);
    list.values.push_back(std::isnan(value) ? NAN : value == 0.0F ? 0.0F : value);
  }
  return list;
}

}  // namespace qpn::test

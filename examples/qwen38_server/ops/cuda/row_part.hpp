// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"

namespace qwen38::ops::cuda {

/// Of a CTA that has a row: rows are long and few.
inline constexpr int row_threads = 1024;

/// Elements thread, thread + 1024, ... of a row: those that a thread keeps in registers, so that
/// their loads are in flight together. Longer rows go on from memory.
struct row_part {
  static constexpr int elements = 8;
  static constexpr int columns = elements * row_threads;
  float v[elements];
};

/// at(i) for the thread's elements i < cols, 0 beyond.
template <class Lane, class At>
QPN_HD row_part take_part(Lane& lane, std::int64_t cols, At const& at) {
  row_part part;
  QPN_UNROLL
  for (int j = 0; j < row_part::elements; ++j) {
    std::int64_t const i = lane.thread() + j * row_threads;
    part.v[j] = i < cols ? at(i) : 0.0F;
  }
  return part;
}

template <class Lane>
QPN_HD row_part load_part(Lane& lane, float const* row, std::int64_t cols) {
  return take_part(lane, cols, [&](std::int64_t i) { return lane.load(row + i); });
}

/// at(i) becomes the element i < cols of a row of y.
template <class Lane, class At>
QPN_HD void write_row(Lane& lane, output_rows const& y, std::int64_t y_row, std::int64_t cols,
                      At const& at) {
  QPN_NO_UNROLL
  for (std::int64_t first = 0; first < cols; first += row_part::columns) {
    row_part const part =
        take_part(lane, cols - first, [&](std::int64_t i) { return at(first + i); });
    QPN_UNROLL
    for (int j = 0; j < row_part::elements; ++j) {
      std::int64_t const i = first + lane.thread() + j * row_threads;
      if (i < cols) store_value(lane, y, y_row, i, part.v[j]);
    }
  }
}

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"

namespace qwen38::ops::cuda {

inline constexpr int gdn_key_dim = 128;  ///< the only one that the recurrence has
inline constexpr int gdn_columns = 8;    ///< of S that a warp advances
inline constexpr int gdn_shares = warp_size / gdn_columns;  ///< of a column's keys, one a lane
inline constexpr int gdn_lane_keys = gdn_key_dim / gdn_shares;
inline constexpr int gdn_largest_head = 256;  ///< elements of a head that a warp can norm

struct gdn_sizes {
  int key_heads = 0;
  int value_heads = 0;
  int value_dim = 0;
  int kernel = 0;  ///< taps of the convolution
  float eps = 0;

  [[nodiscard]] QPN_HD std::int64_t key_channels() const {
    return std::int64_t{key_heads} * gdn_key_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t value_channels() const {
    return std::int64_t{value_heads} * value_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t channels() const {
    return 2 * key_channels() + value_channels();
  }
};

/// Convolved, normed q | k | v and gates of some rows.
struct gdn_rows {
  float* mixed = nullptr;  ///< [row][channels]
  float* decay = nullptr;  ///< [row][value head]
  float* beta = nullptr;   ///< [row][value head]
};

/// State and record of one layer and lane.
struct gdn_lane {
  float* s = nullptr;     ///< [value head][key_dim][value_dim]
  float* conv = nullptr;  ///< [kernel - 1][channels], raw, oldest first
  float* raw = nullptr;   ///< record [row][channels]: what entered the convolution
  gdn_rows record;
};

/// All of them, index layer * lanes + lane.
struct gdn_memory {
  gdn_sizes sizes;
  int lanes = 0;
  int record_rows = 0;
  gdn_lane first;

  [[nodiscard]] QPN_HD std::int64_t s_values() const {
    return sizes.value_channels() * gdn_key_dim;
  }
  [[nodiscard]] QPN_HD std::int64_t conv_values() const {
    return (sizes.kernel - 1) * sizes.channels();
  }
  [[nodiscard]] QPN_HD gdn_lane at(std::int64_t layer, std::int64_t lane) const {
    std::int64_t const i = layer * lanes + lane;
    std::int64_t const record = i * record_rows;
    gdn_lane found;
    found.s = first.s + i * s_values();
    found.conv = first.conv + i * conv_values();
    found.raw = first.raw + record * sizes.channels();
    found.record = {first.record.mixed + record * sizes.channels(),
                    first.record.decay + record * sizes.value_heads,
                    first.record.beta + record * sizes.value_heads};
    return found;
  }
  /// Where the row of a pass, the i-th of its span, has its values: in the record of a tentative
  /// span, else in scratch.
  [[nodiscard]] QPN_HD gdn_rows row(gdn_lane const& at, gdn_rows const& scratch,
                                    span_entry const& span, std::int64_t i) const {
    gdn_rows const& from = span.tentative != 0 ? at.record : scratch;
    std::int64_t const index = span.tentative != 0 ? i : span.first_row + i;
    return {from.mixed + index * sizes.channels(), from.decay + index * sizes.value_heads,
            from.beta + index * sizes.value_heads};
  }
};

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "qpn/format.hpp"

namespace qpn::bench::v100 {

/// A time that others measured and published.
struct published_time {
  double us;
  char const* note;  ///< what is special about it, or ""
};

/// Of the predecessor for one shape, on a V100-SXM2.
[[nodiscard]] std::optional<published_time> predecessor_time(format_id format, std::int64_t n,
                                                             std::int64_t k, int m);

/// Of the strongest other kernel for the shape, of whatever format and card it was.
[[nodiscard]] std::optional<published_time> peer_time(format_id format, std::int64_t n,
                                                      std::int64_t k, int m);

}  // namespace qpn::bench::v100

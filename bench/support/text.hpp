// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace qpn::bench {

/// A number with so many digits after the point.
[[nodiscard]] std::string fixed(double value, int digits);

}  // namespace qpn::bench

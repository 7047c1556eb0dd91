// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <qpn/device_info.hpp>

namespace qpn::test {

/// Tesla V100-SXM2.
[[nodiscard]] constexpr device_info volta_v100() noexcept {
  return {70, 80, 2048, 96 * 1024, 96 * 1024, 6 * 1024 * 1024};
}

/// H200.
[[nodiscard]] constexpr device_info hopper_h200() noexcept {
  return {90, 132, 2048, 228 * 1024, 227 * 1024, 50 * 1024 * 1024};
}

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/candidate_key.hpp>

namespace qwen38::ops {

/// A row's best id; id -1: none of its ids may be chosen.
struct ranked_id {
  float value = 0;
  std::int32_t id = -1;
};

/// The larger value has the larger key, of equals the lower id; a value that is no number has one
/// above all others, and id -1 one below.
[[nodiscard]] QPN_HD constexpr std::uint64_t ranked_key(ranked_id const& one) noexcept {
  return one.id < 0 ? qpn::detail::no_candidate
                    : qpn::detail::candidate_key(one.value, static_cast<std::uint32_t>(one.id));
}

}  // namespace qwen38::ops

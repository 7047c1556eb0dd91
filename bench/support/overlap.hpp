// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <qpn/gemm_types.hpp>

namespace qpn::bench {

/// Whether this version of the library can let a launch overlap the one before it (PDL).
template <class Args = gemm_args>
inline constexpr bool offers_overlap = requires(Args args) {
  args.overlap_previous = true;
};

/// Asks for it where it can be had.
template <class Args>
void overlap_previous(Args& args) {
  if constexpr (offers_overlap<Args>) args.overlap_previous = true;
}

}  // namespace qpn::bench

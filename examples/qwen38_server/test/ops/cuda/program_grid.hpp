// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "support/emulator/emulator.hpp"

namespace qwen38::test {

/// The grid of a kernel on the emulator, its CTAs in a random order; all are resident at once.
template <class Params>
qpn::test::emulation_options grid_of(Params const& kernel, std::uint64_t seed,
                                     qpn::test::emulator_memory& memory) {
  qpn::test::emulation_options options;
  options.blocks = static_cast<int>(kernel.blocks());
  options.threads = Params::threads;
  options.shared_bytes = Params::shared_bytes;
  options.seed = seed;
  options.memory = &memory;
  options.order = qpn::test::cta_order::shuffled;
  options.resident = options.blocks;
  if constexpr (requires { Params::cluster; }) options.cluster = Params::cluster;
  return options;
}

}  // namespace qwen38::test

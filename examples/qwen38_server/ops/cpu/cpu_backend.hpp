// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <qpn/cpu/isa.hpp>

#include "ops/backend.hpp"

namespace qwen38::ops::cpu {

/// The embedded default and the reference of other backends. Activations are fp32; `threads`
/// includes the caller. One caller at a time. `path`: the products' instructions; no bit depends on
/// them.
std::unique_ptr<backend> make_backend(int threads, qpn::cpu::isa path = qpn::cpu::isa::automatic);

}  // namespace qwen38::ops::cpu

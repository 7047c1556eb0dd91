// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "gemm_tune/options.hpp"
#include "gemm_tune/report.hpp"

namespace qpn::bench::tune {

/// Times all choices of all calls on the GPU. Behind each weight `done` gets what is known by then,
/// and a line goes to standard error. Throws wrong_output where a result breaks the promise of
/// qpn::gemm, or where two choices that add in the same order differ in a bit.
[[nodiscard]] report tune(options const& chosen, std::string const& command,
                          std::function<void(report const&)> const& done);

}  // namespace qpn::bench::tune

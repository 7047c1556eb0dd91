// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace qwen38::cli {

/// Clocks, temperature, power and memory in use of all GPUs, as nvidia-smi gives them now, e.g.
/// "0, NVIDIA H200, 1980 MHz, 3201 MHz, 45, 310.20 W, 23000 MiB"; "" where there is no nvidia-smi.
[[nodiscard]] std::string gpu_clocks();

}  // namespace qwen38::cli

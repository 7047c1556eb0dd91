// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu_clocks.hpp"

#include <array>
#include <cstdio>

namespace qwen38::cli {

std::string gpu_clocks() {
  std::FILE* const pipe = ::popen(
      "nvidia-smi "
      "--query-gpu=index,name,clocks.sm,clocks.mem,temperature.gpu,power.draw,memory.used "
      "--format=csv,noheader 2>/dev/null",
      "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  bool const found = ::pclose(pipe) == 0;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return found ? text : "";
}

}  // namespace qwen38::cli

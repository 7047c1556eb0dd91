// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/model_shapes.hpp"

namespace qpn::bench::tune {

inline constexpr char const* usage =
    "gemm_tune [options]: times every choice that qpn::gemm has for a call, and writes a table of\n"
    "those that beat the library's rules\n"
    "  --shape LIST       names such as tp4.down, tp1 or tp4 for all of them, or weights such as\n"
    "                     nvfp4:34816x5120, which is n by k (all named ones)\n"
    "  --m LIST           rows of x (1,8,16,24,32,48,64,80,96,128,256,512,1024,2048)\n"
    "  --replays N        timed replays of each graph; times are their medians (7)\n"
    "  --launches N       launches of each graph, at least (200)\n"
    "  --most-ms N        fewer launches, but all copies of the weight once, where a graph of the\n"
    "                     rules' choice would take longer (20)\n"
    "  --header FILE      the table as a C++ array, which has the name of the file\n"
    "  --json FILE        an array of {shape, format, n, k, m, rule, rule_us, best, best_us, ...}\n"
    "Exit code: 0, 1 where an output was wrong or choices differ in its bits, 2 on an error.\n";

struct options {
  std::vector<model_shape> shapes;  ///< no two of one format, n and k
  std::vector<std::int64_t> m = {1,  8,  16,  24,  32,  48,   64,
                                 80, 96, 128, 256, 512, 1024, 2048};  ///< rising
  std::int64_t replays = 7;
  std::int64_t launches = 200;
  std::int64_t most_ms = 20;
  std::string header_file;  ///< or empty
  std::string json_file;    ///< or empty
  bool help = false;
};

/// The names of shapes may be parts of argv. Throws std::invalid_argument with one sentence where
/// the arguments are not understood.
[[nodiscard]] options parse(int argc, char const* const* argv);

}  // namespace qpn::bench::tune

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/x_fragments.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/model_shapes.hpp"

namespace qpn::bench::roofline {

inline constexpr char const* usage =
    "gemm_roofline [options]: qpn::gemm beside a kernel that only reads the weight, and cuBLAS\n"
    "  --shapes LIST      names such as tp4.down, or tp1 and tp4 for all of them (all shapes)\n"
    "  --formats LIST     only shapes in nvfp4 or fp8 (both)\n"
    "  --m LIST           rows of x (1,2,4,8,16,32,64,96,128,512,2048)\n"
    "  --x ORDER          rows, or fragments: x in fragment order in calls that can have it "
    "(rows)\n"
    "  --read-sizes LIST  also the read kernel over so many megabytes of 10^6 bytes (none)\n"
    "  --replays N        timed replays of each graph; times are their medians (7)\n"
    "  --launches N       launches of each graph, at least (200)\n"
    "  --json FILE        an array of {shape, format, n, k, m, x, us, read_us, cublas_us, "
    "route, ...}\n"
    "  --svg FILE         a chart: the fraction of the read ceiling against m\n"
    "  --table            tables in markdown on standard output; progress goes to standard error\n"
    "and those of Google Benchmark, such as --benchmark_filter=REGEX.\n"
    "Exit code: 0, 1 where an output was wrong (its time is not shown), 2 on an error.\n";

struct options {
  std::vector<model_shape> shapes;
  std::vector<std::int64_t> m = {1, 2, 4, 8, 16, 32, 64, 96, 128, 512, 2048};
  x_order x = x_order::rows;  ///< of calls that can have it
  std::vector<std::int64_t> read_megabytes;
  std::int64_t replays = 7;
  std::int64_t launches = 200;
  std::string json_file;  ///< or empty
  std::string svg_file;   ///< or empty
  bool table = false;
  bool help = false;
};

/// Whether an argument is one of Google Benchmark's.
[[nodiscard]] bool is_google_benchmark(std::string_view argument);

/// Leaves those of Google Benchmark out. Throws std::invalid_argument with one sentence where the
/// arguments are not understood or choose no shape.
[[nodiscard]] options parse(int argc, char const* const* argv);

}  // namespace qpn::bench::roofline

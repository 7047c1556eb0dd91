// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/model_shapes.hpp"
#include "support/run_context.hpp"

namespace qpn::bench::chain {

/// The four projections of a layer, in the order in which it runs them. Each reads the first k
/// columns of what the one before has written, the first one those of the layer before.
///   in       [n, k], fp8: gdn_in or attn_qkv
///   out      fp8: gdn_out or attn_o; adds its residual
///   gate_up  nvfp4, with silu_gate: n / 2 columns
///   down     nvfp4
struct layer {
  std::string name;  ///< "gdn" or "attention"
  int tp = 1;
  std::array<model_shape, 4> projections;
};

inline constexpr std::size_t in = 0;
inline constexpr std::size_t out = 1;
inline constexpr std::size_t gate_up = 2;
inline constexpr std::size_t down = 3;

/// Columns that a projection writes.
[[nodiscard]] constexpr std::int64_t columns_of(layer const& of, std::size_t projection) {
  std::int64_t const n = of.projections[projection].n;
  return projection == gate_up ? n / 2 : n;
}

/// Both layers at TP1, then at TP4.
[[nodiscard]] std::vector<layer> layers();

struct options {
  std::vector<std::int64_t> m = {1, 8};
  std::int64_t replays = 7;
  std::string json_file;  ///< or empty
  bool help = false;
};

inline constexpr char const* usage =
    "gemm_chain [options]: the projections of one layer in sequence, at TP1 and TP4\n"
    "  --m LIST     rows of x (1,8)\n"
    "  --replays N  timed replays of each graph; times are their medians (7)\n"
    "  --json FILE  an array of {layer, tp, m, pdl_us, plain_us, sum_read_us, ...}\n"
    "A table in markdown goes to standard output.\n"
    "Exit code: 0, 1 where an output was wrong (its time is not shown), 2 on an error.\n";

/// Throws std::invalid_argument with one sentence where the arguments are not understood.
[[nodiscard]] options parse(int argc, char const* const* argv);

/// One layer and number of rows, once its outputs are known to be right. Times are of one layer.
struct measured_chain {
  std::string layer;
  int tp = 1;
  std::int64_t m = 0;
  std::optional<double> pdl_us;  ///< launches overlap; none where the library does not offer it
  double plain_us = 0.0;
  double sum_read_us = 0.0;  ///< of kernels that only read the four packed weights, each on its own
  std::vector<std::string> routes;  ///< of the four projections
};

/// An array of {layer, tp, m, pdl_us, plain_us, sum_read_us, routes, device, clocks, toolkit,
/// command}.
[[nodiscard]] std::string json_of(std::vector<measured_chain> const& rows,
                                  run_context const& context);

/// The same as a table.
[[nodiscard]] std::string markdown_of(std::vector<measured_chain> const& rows,
                                      run_context const& context);

}  // namespace qpn::bench::chain

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <qpn/x_fragments.hpp>
#include <string>
#include <vector>

#include "support/model_shapes.hpp"
#include "support/run_context.hpp"

namespace qpn::bench::roofline {

/// One shape and number of rows, once its output is known to be right.
struct measured_row {
  model_shape shape;
  std::int64_t m = 0;
  x_order x = x_order::rows;        ///< of the launches of qpn::gemm
  std::int64_t bytes = 0;           ///< of the packed weight
  double us = 0.0;                  ///< a launch
  double read_us = 0.0;             ///< a launch that only reads the packed weight
  std::optional<double> cublas_us;  ///< a product with the dequantised weight in f16
  std::string route;
  int sm_mhz = 0;  ///< seen right behind the timed replays; 0: not known
  int memory_mhz = 0;

  [[nodiscard]] double fraction() const { return read_us / us; }
  [[nodiscard]] double gb_s() const { return static_cast<double>(bytes) / us * 1e-3; }
};

/// The read kernel over a size of its own.
struct measured_read {
  std::int64_t megabytes = 0;  ///< of 10^6 bytes
  double us = 0.0;

  [[nodiscard]] double gb_s() const { return static_cast<double>(megabytes) * 1e3 / us; }
};

struct report {
  run_context context;
  std::string cublas;  ///< its version, or why there is none
  std::vector<measured_read> reads;
  std::vector<measured_row> rows;
  std::vector<std::string> skipped;  ///< a sentence each
};

/// An array of {shape, format, n, k, m, x, us, read_us, cublas_us, route, bytes, sm_mhz,
/// memory_mhz, device, clocks, toolkit, command}; null where something was not measured.
[[nodiscard]] std::string json_of(report const& measured);

/// The same as tables, with what was skipped.
[[nodiscard]] std::string markdown_of(report const& measured);

/// read_us / us of each shape against m.
[[nodiscard]] std::string svg_of(report const& measured);

}  // namespace qpn::bench::roofline

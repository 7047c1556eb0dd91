// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "constants.hpp"
#include "own_kernels.hpp"
#include "simulation.hpp"

namespace qpn::bench::v100 {

/// A weight of one rank of four of Qwen3.8-27B.
struct model_shape {
  char const* what;
  format_id format;
  dtype code_type;
  std::int64_t n;
  std::int64_t k;
  bool has_target;  ///< docs: modelled time at most `time_limit` of the modelled read
};

/// Most that a time may be of the modelled read of the same bytes.
[[nodiscard]] double time_limit(format_id format, int m);

/// One line of the table: a shape and a number of rows.
struct model_row {
  model_shape shape;
  int m;
  own_launch launch;
  double us;
  double read_us;  ///< of the same bytes

  [[nodiscard]] double bytes() const { return static_cast<double>(launch.layout.total_bytes); }
  [[nodiscard]] double gb_s() const { return bytes() / us * 1e-3; }
  [[nodiscard]] double ratio() const { return us / read_us; }
  /// What is busiest beside memory while all warps run.
  [[nodiscard]] bottleneck busiest() const;
  [[nodiscard]] double instructions_per_weight() const {
    return (*launch.sass)["instructions"] / (*launch.sass)["weights"];
  }
};

/// "nvfp4", "fp8", "f16" or "bf16".
[[nodiscard]] std::string_view format_name(model_shape const& shape);
/// "8704 x 5120"
[[nodiscard]] std::string shape_name(model_shape const& shape);

[[nodiscard]] model_row make_row(sass_table const& table, model_shape const& shape, int m,
                                 fitted_constants const& constants, bool l1_serves = true);

/// All shapes with m = 1, 2, 4, 8, 16, 32, 64 and 96.
[[nodiscard]] std::vector<model_row> make_rows(sass_table const& table,
                                               fitted_constants const& constants,
                                               bool l1_serves = true);

/// What the rows do not keep of the project's limits, a sentence each.
[[nodiscard]] std::vector<std::string> missed_limits(std::vector<model_row> const& rows);

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gemm_roofline/dense_gemm.hpp"
#include "gemm_roofline/loaded_shape.hpp"
#include "gemm_roofline/options.hpp"
#include "gemm_roofline/report.hpp"
#include "support/machine.hpp"

namespace qpn::bench::roofline {

/// The benchmarks of one run and what they have measured.
class session {
 public:
  session(options chosen, std::string command);

  /// Registers what was chosen with Google Benchmark; what the library has no kernel for goes into
  /// the report's `skipped`.
  void register_benchmarks();

  [[nodiscard]] report const& measured() const { return report_; }
  /// 0, 1 where an output was wrong, 2 where something else went wrong.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  void bm_read(benchmark::State& state, std::int64_t megabytes);
  void bm_gemm(benchmark::State& state, model_shape const& shape, std::int64_t m);

  [[nodiscard]] loaded_shape const& load(model_shape const& shape);
  [[nodiscard]] std::optional<double> cublas_us(loaded_shape const& loaded,
                                                activations const& with);
  void fail(benchmark::State& state, int exit_code, std::string const& sentence);

  options options_;
  machine gpu_;
  std::unique_ptr<dense_gemm> cublas_;
  std::unique_ptr<loaded_shape> loaded_;  // one at a time: the largest take gigabytes
  report report_;
  int exit_code_ = 0;
};

}  // namespace qpn::bench::roofline

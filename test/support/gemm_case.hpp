// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/emulated_gemm.hpp"

// A GEMM on the emulator, held to fp64 sums.

namespace qpn::test {

/// One problem on the emulator, with everything that a call may want.
struct gemm_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  std::int64_t m = 1;
  std::int64_t n = 64;
  std::int64_t k = 64;
  device_info device = hopper_h200();
  int sm_count = 1;
  gemm_problem problem{gemm_max_m};
  bool bias = false;
  bool residual = false;
  std::int64_t x_gap = 0;     ///< ldx - k
  bool x_misaligned = false;  ///< x starts 2 bytes behind a multiple of 16
  float outlier = 0.0F;       ///< if not 0, some activations are this large
  emulated_call_options options{};
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return to_string(kind) + " m " + std::to_string(m) + " n " + std::to_string(n) + " k " +
           std::to_string(k) + " sms " + std::to_string(sm_count) + " sm_" +
           std::to_string(device.compute_capability) + " seed " + std::to_string(seed);
  }
};

struct gemm_result {
  std::vector<std::string> problems;  ///< empty: all as it should be
  std::vector<float> y;               ///< [m, columns], decoded
  std::vector<std::int32_t> ids;
  std::vector<float> values;
};

/// Runs a case whose x is given, or random, and holds the result to fp64 sums.
template <class Format>
gemm_result run(gemm_case const& c, std::vector<std::uint16_t> const* given_x = nullptr) {
  random_source random(c.seed);
  device_info device = c.device;
  device.sm_count = c.sm_count;
  packed_gpu_weight weight(published_weight(c.kind, {c.n}, c.k, random), device);
  gemm_result result;
  auto const complain = [&](std::string const& what) {
    result.problems.push_back(c.text() + ": " + what);
  };

  std::int64_t const ldx = c.k + c.x_gap;
  aligned_bytes x_bytes(static_cast<std::size_t>(c.m * ldx) * 2 + 16);
  auto* const x = reinterpret_cast<std::uint16_t*>(x_bytes.data()) + (c.x_misaligned ? 1 : 0);
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < ldx; ++j) {
      float value = random.normal();
      if (c.outlier != 0.0F && random.integer(0, 40) == 0) value *= c.outlier;
      value = std::clamp(value, -60000.0F, 60000.0F);
      // Behind k the rows hold NaN: reading it would show.
      x[i * ldx + j] = j >= c.k ? std::uint16_t{0x7e00} : encode_f16(value);
      if (given_x != nullptr && j < c.k)
        x[i * ldx + j] = (*given_x)[static_cast<std::size_t>(i * c.k + j)];
    }
  }

  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, c.problem, device, plan);
  if (!planned.ok()) {
    complain(planned.what);
    return result;
  }
  std::int64_t const columns = columns_of_y(plan);
  dtype const y_type = c.problem.y_type;
  std::int64_t const ldy = columns + 3;
  aligned_bytes y(static_cast<std::size_t>(c.m * ldy * bits(y_type) / 8));
  std::vector<float> bias = random.normals(c.n);
  std::vector<float> residual = random.normals(c.m * columns);
  aligned_bytes workspace(plan.workspace_bytes);
  std::fill_n(workspace.data(), plan.workspace_zero_bytes, std::byte{0});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(c.m), -1);
  std::vector<float> values(static_cast<std::size_t>(c.m));

  gemm_args args;
  args.m = c.m;
  args.x = x;
  args.ldx = ldx;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = residual.data();
    args.residual_type = dtype::f32;
    args.ld_residual = columns;
  }
  if (c.problem.argmax) {
    args.argmax_ids = ids.data();
    args.argmax_values = values.data();
  }
  emulated_call const call =
      emulate_gemm(plan, args, {workspace.data(), workspace.size()}, c.options);
  result.ids = ids;
  result.values = values;
  if (!call.report.ok()) complain(call.report.text());
  if (!call.weights_read_once) complain("a byte of the records is not read exactly once");
  if (!call.outputs_written_once) complain("an element of y is not written exactly once");
  if (!call.workspace_is_zero) complain("tickets or keys are left behind");

  auto const read_y = [&](std::int64_t i, std::int64_t j) {
    std::int64_t const at = i * ldy + j;
    if (y_type == dtype::f32) return reinterpret_cast<float const*>(y.data())[at];
    std::uint16_t const code = reinterpret_cast<std::uint16_t const*>(y.data())[at];
    return detail::decode_16(code, y_type);
  };
  double const rounding = y_type == dtype::f32   ? std::ldexp(1.0, -23)
                          : y_type == dtype::f16 ? std::ldexp(1.0, -11)
                                                 : std::ldexp(1.0, -8);
  for (std::int64_t i = 0; i < c.m; ++i) {
    std::vector<double> sums(static_cast<std::size_t>(c.n));
    std::vector<double> bounds(static_cast<std::size_t>(c.n));
    for (std::int64_t j = 0; j < c.n; ++j) {
      double magnitude = 0.0;
      double sum = 0.0;
      for (std::int64_t k = 0; k < c.k; ++k) {
        double const product = static_cast<double>(decode_f16(x[i * ldx + k])) *
                               weight.values[static_cast<std::size_t>(j * c.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      double const b = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      sums[static_cast<std::size_t>(j)] = sum + b;
      bounds[static_cast<std::size_t>(j)] =
          2.0 * static_cast<double>(c.k) * std::ldexp(1.0, -24) * magnitude +
          std::ldexp(1.0, -22) * (std::abs(sum) + std::abs(b));
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      double expected = sums[static_cast<std::size_t>(j)];
      double bound = bounds[static_cast<std::size_t>(j)];
      if (c.problem.act == activation::silu_gate) {
        auto const at = static_cast<std::size_t>(j / 32 * 64 + j % 32);
        double const gate = sums[at];
        double const up = sums[at + 32];
        double const s = gate / (1.0 + std::exp(-gate));
        expected = s * up;
        bound = 1.2 * bounds[at] * std::abs(up) + bounds[at + 32] * (std::abs(s) + bounds[at]) +
                std::ldexp(1.0, -20) * std::abs(expected);
      }
      if (c.residual)
        expected += static_cast<double>(residual[static_cast<std::size_t>(i * columns + j)]);
      double const got = static_cast<double>(read_y(i, j));
      result.y.push_back(static_cast<float>(got));
      double const largest = y_type == dtype::f16 ? 65504.0 : 3.4e38;
      double const clipped = std::clamp(expected, -largest, largest);
      double const allowed = bound + rounding * std::abs(clipped) + std::ldexp(1.0, -25);
      bool const both_nan = std::isnan(got) && std::isnan(expected);
      if (!both_nan && !(std::abs(got - clipped) <= allowed)) {
        complain("row " + std::to_string(i) + " column " + std::to_string(j) + " is " +
                 std::to_string(got) + ", expected " + std::to_string(clipped) + " within " +
                 std::to_string(allowed));
        if (result.problems.size() > 5) return result;
      }
    }
  }
  return result;
}

inline gemm_result run_any(gemm_case const& c, std::vector<std::uint16_t> const* x = nullptr) {
  switch (c.kind.format) {
    case format_id::nvfp4: return run<nvfp4>(c, x);
    case format_id::fp8: return run<fp8>(c, x);
    case format_id::dense16: break;
  }
  return run<dense16>(c, x);
}

inline std::string joined(std::vector<std::string> const& lines) {
  std::string all;
  for (std::string const& line : lines) all += line + "\n";
  return all;
}

}  // namespace qpn::test

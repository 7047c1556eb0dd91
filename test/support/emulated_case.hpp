// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/emulated_gemm.hpp"
#include "support/expected_candidates.hpp"
#include "support/fragment_rows.hpp"
#include "support/pattern_weights.hpp"

// GEMM calls on the emulator with everything that a call may want, held to fp64 sums, and lanes
// that change one thing that the programs rely on.

namespace qpn::test {

/// One problem on the emulator, with everything that a call may want.
struct gemm_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  std::int64_t m = 1;
  std::int64_t n = 64;
  std::int64_t k = 64;
  int sm_count = 1;
  device_info device = volta_v100();  ///< with sm_count multiprocessors
  gemm_problem problem{};
  bool bias = false;
  bool residual = false;
  std::int64_t x_gap = 0;     ///< ldx - k
  bool x_misaligned = false;  ///< x starts 2 bytes behind a multiple of 16
  x_order order = x_order::rows;
  bool beside = false;   ///< overlaps the launch before and waits for it at its end
  float outlier = 0.0F;  ///< if not 0, some activations are this large
  std::int32_t first_id = 0;
  std::int32_t id_limit = std::numeric_limits<std::int32_t>::max();
  std::vector<float> given_bias{};                 ///< instead of random numbers
  published_weight const* given_weight = nullptr;  ///< instead of a random one, [n, k]
  bool with_y = true;                              ///< else nothing but the report is looked at
  emulated_call_options options{};
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    return to_string(kind) + " x " + to_string(problem.x_type) + " m " + std::to_string(m) + " n " +
           std::to_string(n) + " k " + std::to_string(k) + " sms " + std::to_string(sm_count) +
           " seed " + std::to_string(seed);
  }
};

struct gemm_result {
  std::vector<std::string> problems;  ///< empty: all as it should be
  std::vector<float> y;               ///< [m, columns], decoded
  std::vector<std::int32_t> ids;      ///< [m][candidates]
  std::vector<float> values;
};

/// Runs a case whose x is given, or random, and holds the result to fp64 sums.
template <class Format>
[[nodiscard]] gemm_result run(gemm_case const& c,
                              std::vector<std::uint16_t> const* given_x = nullptr) {
  random_source random(c.seed);
  device_info const device = with_sms(c.device, c.sm_count);
  packed_gpu_weight weight(
      c.given_weight != nullptr ? *c.given_weight : published_weight(c.kind, {c.n}, c.k, random),
      device);
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
      float const most = c.problem.x_type == dtype::f16 ? 60000.0F : 1e30F;
      value = std::clamp(value, -most, most);
      // Behind k the rows hold NaN, of both types: reading it would show.
      x[i * ldx + j] = j >= c.k ? std::uint16_t{0x7fff} : x_code(value, c.problem.x_type);
      if (given_x != nullptr && j < c.k)
        x[i * ldx + j] = (*given_x)[static_cast<std::size_t>(i * c.k + j)];
    }
  }

  // The same in fragment order, between NaN.
  bool const in_rows = c.order == x_order::rows;
  aligned_bytes fragment_bytes(
      in_rows ? 0 : static_cast<std::size_t>(x_fragments_count(c.m, c.k)) * 2, std::byte{0x7f});
  auto* const fragments = reinterpret_cast<std::uint16_t*>(fragment_bytes.data());
  if (!in_rows) copy_to_fragments(x, ldx, c.m, c.k, fragments);

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
  std::vector<float> bias = c.given_bias.empty() ? random.normals(c.n) : c.given_bias;
  std::vector<float> residual = random.normals(c.m * columns);
  aligned_bytes workspace(plan.workspace_bytes);
  std::fill_n(workspace.data(), plan.workspace_zero_bytes, std::byte{0});
  auto const entries = static_cast<std::size_t>(c.m * c.problem.candidates);
  std::vector<std::int32_t> ids(entries, -7);
  std::vector<float> values(entries);

  gemm_args args;
  args.m = c.m;
  args.x = in_rows ? x : fragments;
  args.ldx = in_rows ? ldx : -1;  // not read
  args.order = c.order;
  args.overlap_previous = c.beside;
  args.beside_previous = c.beside;
  args.weight = weight.view();
  if (c.with_y) args.y = y.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = residual.data();
    args.residual_type = dtype::f32;
    args.ld_residual = columns;
  }
  if (c.problem.candidates != 0) {
    args.candidate_ids = ids.data();
    args.candidate_values = values.data();
    args.first_id = c.first_id;
    args.id_limit = c.id_limit;
  }
  emulated_call const call =
      emulate_gemm(plan, args, {workspace.data(), workspace.size()}, c.options);
  result.ids = ids;
  result.values = values;
  if (!call.report.ok()) complain(call.report.text());
  if (!call.weights_read_once) complain("a byte of the records is not read exactly once");
  if (!call.x_rows_read) complain("more or less than the rows of x is read");
  if (!call.outputs_written_once)
    complain("an element of y or of a list is not written exactly once");
  if (!call.workspace_is_zero) complain("tickets or keys are left behind");
  if (!c.with_y) return result;

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
        double const product = x_value(x[i * ldx + k], c.problem.x_type) *
                               weight.values[static_cast<std::size_t>(j * c.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      double const b = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      sums[static_cast<std::size_t>(j)] = sum + b;
      bounds[static_cast<std::size_t>(j)] =
          (c.problem.algorithm == gemm_algorithm::simt ? 1.0 : 2.0) * static_cast<double>(c.k) *
              std::ldexp(1.0, -24) * magnitude +
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
      double const clipped =
          std::isinf(expected) ? expected : std::clamp(expected, -largest, largest);
      double const allowed = bound + rounding * std::abs(clipped) + std::ldexp(1.0, -25);
      bool const both_nan = std::isnan(got) && std::isnan(expected);
      if (!both_nan && !(got == clipped) && !(std::abs(got - clipped) <= allowed)) {
        complain("row " + std::to_string(i) + " column " + std::to_string(j) + " is " +
                 std::to_string(got) + ", expected " + std::to_string(clipped) + " within " +
                 std::to_string(allowed));
        if (result.problems.size() > 5) return result;
      }
    }
    if (c.problem.candidates == 0 || y_type != dtype::f32) continue;
    expected_list const list = expected_candidates(result.y.data() + i * columns, columns,
                                                   c.problem.candidates, c.first_id, c.id_limit);
    for (std::int64_t place = 0; place < c.problem.candidates; ++place) {
      auto const at = static_cast<std::size_t>(i * c.problem.candidates + place);
      auto const wanted = static_cast<std::size_t>(place);
      if (ids[at] != list.ids[wanted] ||
          detail::float_bits(values[at]) != detail::float_bits(list.values[wanted])) {
        complain("row " + std::to_string(i) + " place " + std::to_string(place) + " is id " +
                 std::to_string(ids[at]) + ", expected " + std::to_string(list.ids[wanted]));
        if (result.problems.size() > 5) return result;
      }
    }
  }
  return result;
}

[[nodiscard]] inline gemm_result run_any(gemm_case const& c,
                                         std::vector<std::uint16_t> const* x = nullptr) {
  switch (c.kind.format) {
    case format_id::nvfp4: return run<nvfp4>(c, x);
    case format_id::fp8: return run<fp8>(c, x);
    case format_id::dense16: break;
  }
  return run<dense16>(c, x);
}

[[nodiscard]] inline std::string joined(std::vector<std::string> const& lines) {
  std::string all;
  for (std::string const& line : lines) all += line + "\n";
  return all;
}

// Exact values: with one weight or one activation in each sum nothing is rounded.

/// y f32 [m, n] of an emulated call without a problem.
template <class Format>
[[nodiscard]] std::vector<float> multiply(packed_gpu_weight& weight, std::uint16_t const* x,
                                          std::int64_t m, workspace_view shared = {},
                                          gemm_problem problem = {},
                                          device_info const& device = volta_v100()) {
  problem.y_type = dtype::f32;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(weight.layout, problem, device, plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  aligned_bytes workspace(plan.workspace_bytes, std::byte{0});
  std::vector<float> y(static_cast<std::size_t>(m * weight.layout.n));
  gemm_args args;
  args.m = m;
  args.x = x;
  args.ldx = weight.layout.k;
  args.weight = weight.view();
  args.y = y.data();
  args.ldy = weight.layout.n;
  workspace_view const own{workspace.data(), workspace.size()};
  emulated_call const call = emulate_gemm(plan, args, shared.data == nullptr ? own : shared);
  EXPECT_TRUE(call.report.ok()) << call.report.text();
  EXPECT_TRUE(call.workspace_is_zero);
  return y;
}

/// Sixteen rows of x that pick one k each, in calls of max_m rows, give the columns of the weight,
/// bit for bit.
template <class Format>
void expect_exact_weights(published_weight published, gemm_problem const& problem = {},
                          device_info const& device = volta_v100()) {
  std::int64_t const n = published.layout().n;
  packed_gpu_weight weight(std::move(published), with_sms(device, 2));
  std::vector<std::uint16_t> const x = identity(16, problem.x_type);
  for (std::int64_t first = 0; first < 16; first += problem.max_m) {
    std::int64_t const m = std::min(problem.max_m, 16 - first);
    std::vector<float> const y =
        multiply<Format>(weight, x.data() + first * 16, m, {}, problem, device);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        auto const at = static_cast<std::size_t>(j * 16 + first + i);
        ASSERT_EQ(y[static_cast<std::size_t>(i * n + j)], static_cast<float>(weight.values[at]))
            << "row " << j << " k " << first + i;
      }
    }
  }
}

// Mutants: each changes one thing that a program relies on.

struct mutation {
  char const* name;
  int drop_sync_block = -1;  ///< which call of the lane
  bool drop_sync_warp = false;
  bool drop_sync_pair = false;
  bool drop_fence = false;
  bool lose_ticket = false;
  bool swap_lanes = false;    ///< of the operand that holds x
  bool swap_rows = false;     ///< weight rows g and g + 8 of m16n8k16
  bool as_f16 = false;        ///< bf16 pairs are multiplied as f16 ones
  bool swap_widened = false;  ///< the halves of a half2
  bool vote_alone = false;    ///< any() is the lane's own condition
  int shuffle_change = 0;     ///< of a mask
  bool rotate_scales = false;
  bool swap_scale_halves = false;
  std::int64_t k_change = 0;
  int k_scale_change = 0;  ///< columns between the scale that is read and the block's own
};

class mutant_lane : public program_lane {
 public:
  mutant_lane(emulated_lane& lane, mutation const& how) : program_lane(lane), how_(how) {}
  [[nodiscard]] std::uint32_t load_stream(std::uint32_t const* p) override {
    std::uint32_t const scales = program_lane::load_stream(p);
    return how_.rotate_scales ? scales << 8 | scales >> 24 : scales;
  }
  void sync_warp() override {
    if (!how_.drop_sync_warp) program_lane::sync_warp();
  }
  void sync_pair() override {
    if (!how_.drop_sync_pair) program_lane::sync_pair();
  }
  void sync_block() override {
    if (blocks_++ != how_.drop_sync_block) program_lane::sync_block();
  }
  void fence_device() override {
    if (!how_.drop_fence) program_lane::fence_device();
  }
  std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t value) override {
    std::uint32_t const old = program_lane::atomic_add(p, value);
    return how_.lose_ticket && old > 0 ? old - 1 : old;
  }
  void mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2],
                  std::uint32_t const (&b)[2]) override {
    // Rows 0 and 4 of A change places: a lane map in which bit 4 of the lane counts for k.
    if (how_.swap_lanes) {
      std::uint32_t const other[2] = {lane().shuffle_xor(a[0], 16), lane().shuffle_xor(a[1], 16)};
      program_lane::mma_m8n8k4(d, other, b);
    } else {
      program_lane::mma_m8n8k4(d, a, b);
    }
  }
  void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                    std::uint32_t const (&b)[2]) override {
    if (how_.swap_lanes) {
      std::uint32_t const other[2] = {lane().shuffle_xor(b[0], 4), lane().shuffle_xor(b[1], 4)};
      program_lane::mma_m16n8k16(d, a, other);
    } else if (how_.swap_rows) {
      std::uint32_t const other[4] = {a[1], a[0], a[3], a[2]};
      program_lane::mma_m16n8k16(d, other, b);
    } else {
      program_lane::mma_m16n8k16(d, a, b);
    }
  }
  void mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4],
                         std::uint32_t const (&b)[2]) override {
    if (how_.swap_lanes) {
      std::uint32_t const other[2] = {lane().shuffle_xor(b[0], 4), lane().shuffle_xor(b[1], 4)};
      program_lane::mma_m16n8k16_bf16(d, a, other);
    } else if (how_.swap_rows) {
      std::uint32_t const other[4] = {a[1], a[0], a[3], a[2]};
      program_lane::mma_m16n8k16_bf16(d, other, b);
    } else if (how_.as_f16) {
      program_lane::mma_m16n8k16(d, a, b);
    } else {
      program_lane::mma_m16n8k16_bf16(d, a, b);
    }
  }
  [[nodiscard]] bool any(bool condition) override {
    bool const of_warp = program_lane::any(condition);
    return how_.vote_alone ? condition : of_warp;
  }
  [[nodiscard]] std::uint32_t shuffle_xor(std::uint32_t value, int mask) override {
    return program_lane::shuffle_xor(value, mask ^ how_.shuffle_change);
  }
  [[nodiscard]] float widen_low(std::uint32_t pair) override {
    return how_.swap_widened ? program_lane::widen_high(pair) : program_lane::widen_low(pair);
  }
  [[nodiscard]] std::uint32_t broadcast_low(std::uint32_t a) override {
    return how_.swap_scale_halves ? program_lane::broadcast_high(a)
                                  : program_lane::broadcast_low(a);
  }

 private:
  mutation how_;
  int blocks_ = 0;
};

/// What is wrong with a case whose lanes are mutants, under the first schedule that shows
/// something.
[[nodiscard]] inline std::vector<std::string> problems_of_mutant(gemm_case c, mutation const& how) {
  std::deque<mutant_lane> lanes;
  c.options.make_lane = [&](emulated_lane& lane) -> program_lane& {
    return lanes.emplace_back(lane, how);
  };
  c.options.change_params = [&how](detail::sm70::gemm_params& p) {
    p.k += how.k_change;
    if (p.k_scales != nullptr) p.k_scales += how.k_scale_change;
  };
  c.options.change_mma16_params = [&how](detail::sm80::gemm_params& p) { p.k += how.k_change; };
  std::vector<std::string> problems;
  for (std::uint64_t seed = 0; seed < 4 && problems.empty(); ++seed) {
    c.options.seed = seed;
    problems = run_any(c).problems;
  }
  return problems;
}

}  // namespace qpn::test

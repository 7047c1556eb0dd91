// SPDX-License-Identifier: Apache-2.0
#include "qpn/arch/sm90/gemm_wide_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <qpn/arch/sm80/bf16_operand.hpp>
#include <qpn/arch/sm90/gemm_wide_params.hpp>
#include <qpn/reference/dequant.hpp>
#include <string>
#include <vector>

#include "support/aligned_bytes.hpp"
#include "support/devices.hpp"
#include "support/gemm_bound.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/serial_lane.hpp"
#include "support/wide_emulator.hpp"

namespace qpn::test {
namespace {

using detail::sm90::wide_output;

struct order_lane : serial_lane {
  using serial_lane::serial_lane;
  void allow_next() {}
};

/// One call, on clusters of `ranks` CTAs, two clusters for all tiles.
struct wide_case {
  weight_kind kind{format_id::nvfp4, scale_mode::tensor, dtype::f16};
  dtype x_type = dtype::f16;
  std::int64_t m = 97;
  std::int64_t n = 320;
  std::int64_t k = 208;
  int ranks = 1;
  int tail_tiles = 0;  ///< last tiles in a launch of their own
  int tail_ranks = 0;
  dtype y_type = dtype::f16;
  std::int64_t y_gap = 0;
  bool gate = false;
  bool bias = false;
  bool residual = false;  ///< in place, of y's type
  std::int64_t x_gap = 0;
  float size = 1.0F;
  lost_operation lost = lost_operation::none;
  std::uint64_t schedule = 1;
  std::uint64_t seed = 1;
};

std::string text(wide_case const& c) {
  return to_string(operand_kinds{c.kind, c.x_type}) + " m " + std::to_string(c.m) + " n " +
         std::to_string(c.n) + " k " + std::to_string(c.k) + " ranks " + std::to_string(c.ranks) +
         " seed " + std::to_string(c.seed);
}

struct wide_run {
  std::string problems;  ///< of the emulator
  bool exact = true;     ///< y keeps the bound
  wide_output output{};
  std::vector<std::uint8_t> y;
};

float read(std::byte const* y, dtype type, std::int64_t at) {
  if (type == dtype::f32) return reinterpret_cast<float const*>(y)[at];
  return detail::decode_16(reinterpret_cast<std::uint16_t const*>(y)[at], type);
}

void write(std::byte* y, dtype type, std::int64_t at, float value) {
  if (type == dtype::f32) {
    reinterpret_cast<float*>(y)[at] = value;
  } else {
    reinterpret_cast<std::uint16_t*>(y)[at] =
        detail::encode_16(value, type, overflow_policy::saturate);
  }
}

template <class Format, class Operand, int Rows>
wide_run run_as(wide_case const& c) {
  wide_run result;
  random_source random(c.seed);
  published_weight published(c.kind, {c.n}, c.k, random);
  packed_layout layout;
  EXPECT_TRUE(
      make_packed_layout(c.kind.format, c.kind.scale, c.n, c.k, dtype::f16, hopper_h200(), layout)
          .ok());
  aligned_bytes bytes(static_cast<std::size_t>(layout.total_bytes));
  std::vector<weight_part> const parts = published.views();
  EXPECT_TRUE(prepack(layout, parts.data(), parts.size(), bytes.data()).ok());
  std::vector<double> w(static_cast<std::size_t>(c.n * c.k));
  reference::dequant(published.layout(), parts.data(), parts.size(), w.data());

  gemm_problem problem;
  problem.max_m = c.m;
  problem.x_type = c.x_type;
  problem.y_type = c.y_type;
  problem.act = c.gate ? activation::silu_gate : activation::none;
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(layout, problem, hopper_h200(), plan);
  EXPECT_TRUE(planned.ok()) << planned.what;
  std::int64_t const ldx = c.k + c.x_gap;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * ldx), 0x7fff);  // NaN between rows
  for (std::int64_t i = 0; i < c.m * c.k; ++i) {
    x[static_cast<std::size_t>(i / c.k * ldx + i % c.k)] =
        detail::encode_16(c.size * random.normal(), c.x_type, overflow_policy::infinite);
  }
  std::int64_t const columns = columns_of_y(plan);
  std::int64_t const ldy = columns + c.y_gap;
  aligned_bytes y(static_cast<std::size_t>(c.m * ldy * bits(c.y_type) / 8));
  std::vector<float> const bias = random.normals(c.n);
  std::vector<double> before;
  if (c.residual) {
    for (std::int64_t i = 0; i < c.m * columns; ++i) {
      write(y.data(), c.y_type, i / columns * ldy + i % columns, random.normal());
    }
  }
  for (std::int64_t i = 0; i < c.m * columns; ++i) {
    before.push_back(
        static_cast<double>(read(y.data(), c.y_type, i / columns * ldy + i % columns)));
  }
  aligned_bytes workspace(plan.workspace_bytes);
  gemm_args args;
  args.m = c.m;
  args.x = x.data();
  args.ldx = ldx;
  args.weight = {layout, bytes.data()};
  args.y = y.data();
  args.ldy = ldy;
  if (c.bias) args.bias = bias.data();
  if (c.residual) {
    args.residual = y.data();
    args.residual_type = c.y_type;
    args.ld_residual = ldy;
  }
  workspace_view const view{workspace.data(), workspace.size()};
  EXPECT_TRUE(detail::check_gemm(plan, args, view).ok());

  detail::sm90::order_params const order = detail::sm90::make_order_params(plan, args, view);
  for (std::int64_t i = 0; i < (order.chunks - 1) / 256 + 1; ++i) {
    for (int thread = 0; thread < detail::sm90::order_threads; ++thread) {
      order_lane lane(static_cast<int>(i), thread);
      detail::sm90::order_rows_program<Operand>(lane, order);
    }
  }
  auto params = detail::sm90::make_gemm_wide_params<Operand>(plan, args, view, Rows);
  result.output = params.output;
  auto const launch = [&](int first_tile, int end_tile, int ranks) {
    params.first_tile = first_tile;
    params.end_tile = end_tile;
    int const clusters = std::min(end_tile - first_tile, 2);
    for (int i = 0; i < clusters; ++i) {
      wide_cluster cluster(ranks, i * ranks, clusters * ranks, detail::sm90::wide_threads,
                           detail::sm90::wide_shared<Operand, Rows>::bytes, c.schedule, c.lost);
      cluster.run([&params](wide_test_lane& lane) {
        detail::sm90::gemm_wide_program<Operand, Rows>(lane, params);
      });
      result.problems += cluster.problems();
    }
  };
  int const tiles = params.end_tile;
  launch(0, tiles - c.tail_tiles, c.ranks);
  if (c.tail_tiles > 0) launch(tiles - c.tail_tiles, tiles, c.tail_ranks);

  for (std::int64_t i = 0; i < c.m; ++i) {
    std::vector<bounded> sums;
    for (std::int64_t j = 0; j < c.n; ++j) {
      exact_sum exact;
      for (std::int64_t k = 0; k < c.k; ++k) {
        auto const a = static_cast<double>(
            detail::decode_16(x[static_cast<std::size_t>(i * ldx + k)], c.x_type));
        double const b = w[static_cast<std::size_t>(j * c.k + k)];
        exact.sum += a * b;
        exact.magnitude += std::abs(a * b);
      }
      double const b = c.bias ? static_cast<double>(bias[static_cast<std::size_t>(j)]) : 0.0;
      sums.push_back(bounded_sum(exact, c.k, layout.code_type, b));
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      auto const at = static_cast<std::size_t>(c.gate ? j / 32 * 64 + j % 32 : j);
      bounded expected = c.gate ? bounded_silu_gate(sums[at], sums[at + 32]) : sums[at];
      if (c.residual) {
        expected = with_residual(expected, before[static_cast<std::size_t>(i * columns + j)]);
      }
      expected = rounded_to(expected, c.y_type);
      auto const found = static_cast<double>(read(y.data(), c.y_type, i * ldy + j));
      // NaN keeps no bound.
      if (!(std::abs(found - expected.value) <= expected.bound)) result.exact = false;
    }
    auto const* const row =
        reinterpret_cast<std::uint8_t const*>(y.data()) + i * ldy * bits(c.y_type) / 8;
    result.y.insert(result.y.end(), row, row + columns * bits(c.y_type) / 8);
  }
  return result;
}

template <int Rows>
wide_run run(wide_case const& c) {
  using detail::sm80::bf16_operand;
  using detail::sm80::weight_operand;
  if (c.x_type == dtype::bf16) {
    return c.kind.format == format_id::nvfp4 ? run_as<nvfp4, bf16_operand<nvfp4>, Rows>(c)
                                             : run_as<fp8, bf16_operand<fp8>, Rows>(c);
  }
  return c.kind.format == format_id::nvfp4
             ? run_as<nvfp4, weight_operand<nvfp4, dtype::e2m1>, Rows>(c)
             : run_as<fp8, weight_operand<fp8, dtype::e4m3>, Rows>(c);
}

constexpr weight_kind kinds[] = {
    {format_id::nvfp4, scale_mode::tensor, dtype::f16},
    {format_id::nvfp4, scale_mode::channel, dtype::f16},
    {format_id::fp8, scale_mode::tensor, dtype::f16},
    {format_id::fp8, scale_mode::channel, dtype::f16},
};

TEST(sm90_gemm_wide_program, keeps_the_bound_for_every_kind_and_cluster) {
  std::uint64_t seed = 1;
  for (weight_kind const kind : kinds) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      wide_case c;
      c.kind = kind;
      c.ranks = ranks;
      c.m = ranks % 2 == 0 ? 97 : 140;
      c.n = ranks == 3 ? 64 : 320;  // the last tile is not full
      // fp8 ends with half a stage.
      c.k = kind.format == format_id::nvfp4 ? 272 : 270 + ranks;
      c.x_gap = ranks - 1;
      c.schedule = c.seed = seed++;
      wide_run const result = ranks == 2 ? run<96>(c) : run<128>(c);
      EXPECT_EQ(result.output, wide_output::halves);
      EXPECT_TRUE(result.problems.empty()) << text(c) << ": " << result.problems;
      EXPECT_TRUE(result.exact) << text(c);
    }
  }
}

TEST(sm90_gemm_wide_program, keeps_the_bound_for_x_in_bf16) {
  std::uint64_t seed = 20;
  for (weight_kind const kind : {kinds[1], kinds[2]}) {
    for (float const size : {1.0F, 1e30F}) {
      wide_case c;
      c.kind = kind;
      c.x_type = dtype::bf16;
      c.y_type = dtype::f32;
      c.ranks = size > 1.0F ? 2 : 1;
      c.k = kind.format == format_id::nvfp4 ? 272 : 271;
      c.x_gap = 1;
      c.size = size;
      c.schedule = c.seed = seed++;
      wide_run const result = size > 1.0F ? run<96>(c) : run<128>(c);
      EXPECT_TRUE(result.problems.empty()) << text(c) << ": " << result.problems;
      EXPECT_TRUE(result.exact) << text(c);
    }
  }
}

// The last tiles in a launch of their own, by larger clusters.
TEST(sm90_gemm_wide_program, keeps_the_bound_with_a_tail) {
  std::uint64_t seed = 20;
  for (weight_kind const kind : kinds) {
    for (int tail_tiles : {1, 2, 3}) {
      wide_case c;
      c.kind = kind;
      c.m = 140;
      c.n = 320;  // 2 x 2 tiles
      c.k = 272;
      c.tail_tiles = tail_tiles;
      c.y_type = dtype::f32;
      c.residual = true;  // which tiles that are computed twice would add twice
      c.ranks = tail_tiles == 2 ? 2 : 1;
      c.tail_ranks = c.ranks + tail_tiles % 2 + 1;
      c.schedule = c.seed = seed++;
      wide_run const result = run<128>(c);
      EXPECT_TRUE(result.problems.empty()) << text(c) << ": " << result.problems;
      EXPECT_TRUE(result.exact) << text(c) << " tail " << tail_tiles << " by " << c.tail_ranks;
    }
  }
}

TEST(sm90_gemm_wide_program, finishes_y_of_every_type_and_alignment) {
  std::uint64_t seed = 40;
  for (dtype y_type : {dtype::f16, dtype::bf16, dtype::f32}) {
    for (bool gate : {false, true}) {
      for (std::int64_t gap : {0, 1}) {
        wide_case c;
        c.y_type = y_type;
        c.gate = gate;
        c.n = gate ? 320 : 290;
        c.k = 80;
        c.y_gap = gap;
        c.bias = true;
        c.residual = y_type == dtype::f32 || gap == 1;
        c.ranks = gate ? 2 : 1;
        c.size = gate ? 0.01F : 1.0F;
        c.seed = seed++;
        if (!gate && gap == 0) c.n = 288;
        wide_run const result = run<96>(c);
        wide_output const expected = gap == 1               ? wide_output::elements
                                     : y_type == dtype::f32 ? wide_output::floats
                                                            : wide_output::halves;
        EXPECT_EQ(result.output, expected) << text(c);
        EXPECT_TRUE(result.problems.empty()) << text(c) << ": " << result.problems;
        EXPECT_TRUE(result.exact) << text(c) << " y " << to_string(y_type) << " gap " << gap;
      }
    }
  }
}

TEST(sm90_gemm_wide_program, saturates_what_a_16_bit_y_cannot_hold) {
  wide_case c;
  c.size = 3000.0F;
  c.n = 64;
  c.k = 64;
  wide_run const result = run<96>(c);
  EXPECT_TRUE(result.problems.empty()) << result.problems;
  EXPECT_TRUE(result.exact);
  std::int64_t saturated = 0;
  for (std::size_t i = 0; i + 1 < result.y.size(); i += 2) {
    if ((result.y[i + 1] & 0x7f) == 0x7b && result.y[i] == 0xff) ++saturated;
  }
  EXPECT_GT(saturated, 0);
}

TEST(sm90_gemm_wide_program, gives_the_same_bits_whatever_the_order_of_its_threads) {
  wide_case c;
  c.n = 256;
  c.k = 336;
  c.ranks = 3;
  wide_run const first = run<128>(c);
  EXPECT_TRUE(first.exact);
  c.schedule = 77;
  wide_run const again = run<128>(c);
  EXPECT_EQ(first.y, again.y);
}

TEST(sm90_gemm_wide_program, is_wrong_without_any_of_its_waits) {
  for (lost_operation lost :
       {lost_operation::barrier_wait, lost_operation::product_wait, lost_operation::cluster_sync}) {
    wide_case c;
    c.lost = lost;
    c.ranks = 2;
    c.n = 256;
    c.k = 720;
    c.m = 200;
    wide_run const result = run<128>(c);
    EXPECT_FALSE(result.exact && result.problems.empty()) << static_cast<int>(lost);
  }
}

}  // namespace
}  // namespace qpn::test

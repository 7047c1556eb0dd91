// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/dense_panels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <qpn/detail/device_dequantize.hpp>
#include <qpn/detail/gemm_epilogue.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <vector>

#include "support/aligned_bytes.hpp"
#include "support/devices.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/serial_lane.hpp"
#include "support/weight_pieces.hpp"

// gemm_dense.cuh panel by panel on the host: its programs thread by thread, its plan, and a GEMM of
// three loops.

namespace qpn::test {
namespace {

using detail::panel_unit;

packed_layout layout_of(std::int64_t n, std::int64_t k, format_id format = format_id::nvfp4,
                        scale_mode scale = scale_mode::tensor) {
  packed_layout layout;
  status const made = make_packed_layout(format, scale, n, k, dtype::f16, volta_v100(), layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

TEST(dense_panels, are_as_large_as_the_bytes_allow_and_even) {
  for (std::int64_t n : {1, 64, 100, 8704, 62080}) {
    packed_layout const layout = layout_of(n, 5120);
    std::int64_t const whole = layout.padded_n;
    for (std::int64_t max_m : {97, 2048}) {
      EXPECT_EQ(detail::choose_panel_rows(layout, max_m, dense_panel_bytes(layout, max_m, n)),
                whole);
      EXPECT_EQ(detail::choose_panel_rows(layout, max_m, SIZE_MAX), whole);
      EXPECT_EQ(detail::choose_panel_rows(layout, max_m, dense_panel_bytes(layout, max_m, 1) - 1),
                0);
      for (std::int64_t wanted = 64; wanted < whole; wanted += 1984) {
        std::size_t const bytes = dense_panel_bytes(layout, max_m, wanted);
        std::int64_t const rows = detail::choose_panel_rows(layout, max_m, bytes);
        EXPECT_EQ(rows % panel_unit, 0);
        EXPECT_LE(rows, wanted);
        EXPECT_LE(detail::place_panels(layout, max_m, rows, nullptr).bytes, bytes);
        // As few panels as `wanted` rows each would need, and none a unit smaller would do.
        std::int64_t const panels = (whole - 1) / wanted + 1;
        EXPECT_EQ((whole - 1) / rows + 1, panels);
        EXPECT_TRUE(rows == panel_unit || (whole - 1) / (rows - panel_unit) + 1 > panels)
            << "n " << n << " wanted " << wanted << " rows " << rows;
      }
    }
  }
}

TEST(dense_panels, count_their_bytes_and_refuse_what_has_no_size) {
  packed_layout const layout = layout_of(100, 72 + 8);
  EXPECT_EQ(dense_panel_bytes(layout, 97, 64), 64u * (2 * 80 + 4 * 97));
  EXPECT_EQ(dense_panel_bytes(layout, 97, 65), 128u * (2 * 80 + 4 * 97));
  EXPECT_EQ(dense_panel_bytes(layout, 97, 5000), dense_panel_bytes(layout, 97, 100));
  EXPECT_EQ(dense_panel_bytes(layout, gemm_wide_max_m + 1, 64), SIZE_MAX);
  EXPECT_EQ(detail::panel_ldw(layout_of(3, 81, format_id::fp8)), 88);
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{4096});
  detail::dense_panels const placed = detail::place_panels(layout, 97, 64, base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(placed.weights), base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(placed.sums), base + 64 * 80 * 2);
  EXPECT_EQ(placed.bytes, dense_panel_bytes(layout, 97, 64));
}

/// gemm_dense of gemm_dense.cuh, whose steps these are. The sums are exact but for their rounding
/// to fp32.
template <class Format>
void run_dense(gemm_plan<Format> const& plan, gemm_args const& args) {
  packed_layout const& layout = plan.layout;
  int const exponent = detail::panel_exponent(layout.code_type);
  aligned_bytes memory(plan.workspace_bytes);
  detail::dense_panels const panels = detail::place_panels(
      layout, plan.problem.max_m, plan.panel_rows, memory.data() + plan.workspace_zero_bytes);
  for (std::int64_t first = 0; first < layout.n; first += plan.panel_rows) {
    std::int64_t const rows = std::min(plan.panel_rows, layout.n - first);
    detail::dequantize_params weights;
    weights.weight = args.weight;
    weights.first_row = first;
    weights.rows = rows;
    weights.out = panels.weights;
    weights.ldo = detail::panel_ldw(layout);
    weights.with_scales = false;
    weights.factor = std::ldexp(1.0F, exponent);
    ASSERT_TRUE(detail::check_dequantize<Format>(weights).ok());
    EXPECT_TRUE(weights.by_words) << "rows of a panel are 16-byte aligned";
    run_serially(detail::units_of_rows<Format>(layout, first, rows), detail::word_threads, false,
                 nullptr, [&](auto& lane) { detail::dequantize_program<Format>(lane, weights); });

    auto const* const x = static_cast<std::uint16_t const*>(args.x);
    for (std::int64_t i = 0; i < args.m; ++i) {
      for (std::int64_t j = 0; j < rows; ++j) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < layout.k; ++k) {
          sum += static_cast<double>(decode_f16(x[i * args.ldx + k])) *
                 static_cast<double>(decode_f16(panels.weights[j * weights.ldo + k]));
        }
        panels.sums[i * plan.panel_rows + j] = static_cast<float>(sum);
      }
    }

    detail::dense_epilogue_params sums;
    sums.sums = panels.sums;
    sums.ld = plan.panel_rows;
    sums.first_group = first / panel_unit;
    sums.groups = (rows - 1) / panel_unit + 1;
    sums.m = args.m;
    sums.epilogue = detail::make_epilogue_params(plan, args, exponent);
    run_serially(detail::dense_epilogue_blocks(sums.groups, sums.m), detail::dense_epilogue_threads,
                 true, nullptr, [&](auto& lane) { detail::dense_epilogue_program(lane, sums); });
  }
}

template <class Format>
void expect_rounded_once(weight_kind kind, bool gate, std::uint64_t seed) {
  random_source random(seed);
  std::int64_t const n = gate ? 192 : 150;
  std::int64_t const k = kind.format == format_id::nvfp4 ? 80 : 77;
  constexpr std::int64_t m = gemm_max_m + 5;
  published_weight published(kind, {n}, k, random);
  packed_layout const layout = volta_layout_of(published);
  aligned_bytes packed(static_cast<std::size_t>(layout.total_bytes));
  std::vector<weight_part> const parts = published.views();
  ASSERT_TRUE(prepack(layout, parts.data(), parts.size(), packed.data()).ok());
  std::vector<double> values(static_cast<std::size_t>(n * k));
  reference::dequant(published.layout(), parts.data(), parts.size(), values.data());

  gemm_problem problem;
  problem.max_m = gemm_max_m + 24;
  problem.y_type = dtype::f32;
  problem.act = gate ? activation::silu_gate : activation::none;
  problem.dense_min_m = gemm_max_m + 1;
  problem.dense_bytes = dense_panel_bytes(layout, problem.max_m, 64);
  gemm_plan<Format> plan;
  status const planned = make_gemm_plan(layout, problem, volta_v100(), plan);
  ASSERT_TRUE(planned.ok()) << planned.what;
  ASSERT_EQ(plan.panel_rows, 64);
  ASSERT_TRUE(uses_panels(plan, m));

  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < m * k; ++i) x.push_back(encode_f16(0x1p-7F * random.normal()));
  std::int64_t const columns = columns_of_y(plan);
  std::vector<float> const bias = random.normals(n);
  std::vector<float> const residual = random.normals(m * columns);
  std::vector<float> y = residual;
  gemm_args args;
  args.m = m;
  args.x = x.data();
  args.ldx = k;
  args.weight = {layout, packed.data()};
  args.y = y.data();
  args.ldy = columns;
  args.bias = bias.data();
  args.residual = y.data();
  args.residual_type = dtype::f32;
  args.ld_residual = columns;
  run_dense(plan, args);

  for (std::int64_t i = 0; i < m; ++i) {
    std::vector<double> sums(static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::int64_t t = 0; t < k; ++t) {
        sum += static_cast<double>(decode_f16(x[static_cast<std::size_t>(i * k + t)])) *
               values[static_cast<std::size_t>(j * k + t)];
      }
      sums[static_cast<std::size_t>(j)] =
          sum + static_cast<double>(bias[static_cast<std::size_t>(j)]);
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      double expected = sums[static_cast<std::size_t>(j)];
      if (gate) {
        auto const at = static_cast<std::size_t>(j / 32 * 64 + j % 32);
        expected = sums[at] / (1.0 + std::exp(-sums[at])) * sums[at + 32];
      }
      auto const at = static_cast<std::size_t>(i * columns + j);
      // Sums, scale, bias and residual are rounded to fp32 once each, and that is all.
      double const size = std::abs(expected) + std::abs(static_cast<double>(residual[at])) + 8.0;
      expected += static_cast<double>(residual[at]);
      ASSERT_NEAR(static_cast<double>(y[at]), expected, 0x1p-20 * (gate ? 16.0 : 1.0) * size)
          << kind << " seed " << seed << " row " << i << " column " << j;
    }
  }
}

TEST(dense_panels, round_nothing_but_fp32_sums) {
  std::uint64_t seed = 1;
  for (weight_kind kind : kinds_without_scale_blocks) {
    for (bool gate : {false, true}) {
      visit_format<int>(kind.format, 0, [&](auto format) {
        expect_rounded_once<decltype(format)>(kind, gate, seed++);
        return 0;
      });
    }
  }
}

/// Counts the NaN that it loads.
struct poison_lane : serial_lane {
  poison_lane(int block, int thread) : serial_lane(block, thread) {}
  template <class T>
  [[nodiscard]] T load(T const* p) {
    if (std::isnan(*p)) ++poisoned;
    return *p;
  }
  int poisoned = 0;
};

TEST(dense_panels, read_no_sum_that_the_gemm_does_not_write) {
  // The second panel of 128 rows of a weight with 198: 70 columns, then nothing.
  constexpr std::int64_t m = 3;
  std::vector<float> sums(std::size_t{m} * 128, NAN);
  std::vector<float> y(std::size_t{m} * 198, -1.0F);
  detail::dense_epilogue_params p;
  p.sums = sums.data();
  p.ld = 128;
  p.first_group = 2;
  p.groups = 2;
  p.m = m;
  p.epilogue.n = 198;
  p.epilogue.y = y.data();
  p.epilogue.ldy = 198;
  p.epilogue.y_type = dtype::f32;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < 70; ++j) {
      sums[static_cast<std::size_t>(i * 128 + j)] = static_cast<float>(100 * i + j);
    }
  }
  for (int thread = 0; thread < detail::dense_epilogue_threads; ++thread) {
    ASSERT_EQ(detail::dense_epilogue_blocks(p.groups, m), 1);
    poison_lane lane(0, thread);
    detail::dense_epilogue_program(lane, p);
    EXPECT_EQ(lane.poisoned, 0) << "thread " << thread;
  }
  for (std::int64_t i = 0; i < m * 198; ++i) {
    float const expected =
        i % 198 < 128 ? -1.0F : static_cast<float>(100 * (i / 198) + i % 198 - 128);
    EXPECT_EQ(y[static_cast<std::size_t>(i)], expected) << "row " << i / 198;
  }
}

TEST(dense_panels, hold_codes_times_block_scales_exactly) {
  random_source random(3);
  for (weight_kind kind : kinds_without_scale_blocks) {
    published_weight published(kind, {70}, 96, random);
    if (kind.scale == scale_mode::tensor) published.parts()[0].global_scale = 0.7F;
    if (kind.dense_type == dtype::bf16) {
      // Down to 2^-25 with all of its bits, where f16 itself has none left.
      for (int i = 0; i < 18; ++i) {
        std::uint16_t const code = encode_bf16(std::ldexp(1.9921875F, -8 - i));
        std::memcpy(published.parts()[0].codes.data() + 2 * i, &code, 2);
      }
    }
    packed_layout const layout = volta_layout_of(published);
    aligned_bytes packed(static_cast<std::size_t>(layout.total_bytes));
    std::vector<weight_part> const parts = published.views();
    ASSERT_TRUE(prepack(layout, parts.data(), parts.size(), packed.data()).ok());
    weight_part unscaled = parts[0];
    unscaled.global_scale = 1.0F;
    std::vector<float> const ones(70, 1.0F);
    if (unscaled.channel_scales != nullptr) unscaled.channel_scales = ones.data();
    std::vector<std::uint16_t> panel(std::size_t{70} * 96);
    visit_format<int>(kind.format, 0, [&](auto format) {
      using Format = decltype(format);
      detail::dequantize_params p;
      p.weight = {layout, packed.data()};
      p.rows = 70;
      p.out = panel.data();
      p.ldo = 96;
      p.with_scales = false;
      p.factor = std::ldexp(1.0F, detail::panel_exponent(layout.code_type));
      EXPECT_TRUE(detail::check_dequantize<Format>(p).ok());
      run_serially(detail::units_of_rows<Format>(layout, 0, 70), detail::word_threads, false,
                   nullptr, [&](auto& lane) { detail::dequantize_program<Format>(lane, p); });
      for (std::int64_t i = 0; i < 70; ++i) {
        for (std::int64_t k = 0; k < 96; ++k) {
          double const exact = reference::weight_at(layout, unscaled, i, k);
          double const held = std::ldexp(
              static_cast<double>(decode_f16(panel[static_cast<std::size_t>(i * 96 + k)])),
              -detail::panel_exponent(layout.code_type));
          EXPECT_EQ(held, exact) << kind << " row " << i << " k " << k;
        }
      }
      return 0;
    });
  }
}

}  // namespace
}  // namespace qpn::test

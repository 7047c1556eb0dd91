// SPDX-License-Identifier: Apache-2.0
#include "qpn/gemm_choice.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <qpn/gemm_types.hpp>
#include <string>
#include <vector>

#include "support/devices.hpp"
#include "support/hopper_layout.hpp"

namespace qpn {

// NOLINTNEXTLINE(misc-use-internal-linkage): gtest finds it by its argument
void PrintTo(gemm_choice choice, std::ostream* out) {
  *out << detail::gemm_method_names[static_cast<int>(choice.method)] << " " << choice.rows << " "
       << int{choice.groups} << " " << int{choice.ranks} << " " << int{choice.tail_ranks}
       << " registers " << choice.registers;
}

}  // namespace qpn

namespace qpn::test {
namespace {

/// A weight that the table of an H200 does not have, and rows for it.
constexpr std::int64_t some_n = 4160;
constexpr std::int64_t some_k = 5120;

packed_layout some_layout(format_id format = format_id::nvfp4,
                          scale_mode scale = scale_mode::tensor) {
  return hopper_layout(format, scale, some_n, some_k);
}

gemm_tuning_row row_for(std::int64_t first_m, std::int64_t last_m, gemm_choice choice,
                        format_id format = format_id::nvfp4) {
  return {format, some_n, some_k, first_m, last_m, choice};
}

template <class Format = nvfp4>
gemm_plan<Format> planned(packed_layout const& layout, gemm_problem const& problem,
                          device_info const& device = hopper_h200()) {
  gemm_plan<Format> plan;
  status const made = make_gemm_plan(layout, problem, device, plan);
  EXPECT_TRUE(made.ok()) << made.what;
  return plan;
}

gemm_problem tuned_problem(gemm_tuning tuning, std::int64_t max_m = 2048) {
  gemm_problem problem;
  problem.max_m = max_m;
  problem.tuning = tuning;
  return problem;
}

TEST(gemm_choice, of_a_row_takes_its_calls_and_the_rules_take_the_others) {
  gemm_tuning_row const rows[] = {row_for(9, 12, {gemm_method::mt1}),
                                  row_for(40, 48, {gemm_method::group, 64, 2}),
                                  row_for(100, 110, {gemm_method::wide, 96, 0, 3, 4})};
  packed_layout const layout = some_layout();
  auto const plan = planned(layout, tuned_problem(tuning_of(rows)));
  auto const ruled = planned(layout, tuned_problem({}));
  for (std::int64_t m = 1; m <= 300; ++m) {
    gemm_choice const expected = m >= 9 && m <= 12      ? rows[0].choice
                                 : m >= 40 && m <= 48   ? rows[1].choice
                                 : m >= 100 && m <= 110 ? rows[2].choice
                                                        : choice_of(ruled, m);
    EXPECT_EQ(choice_of(plan, m), expected) << m;
    EXPECT_EQ(choice_of(ruled, m),
              detail::rule_choice<nvfp4>(layout, true, false, ruled.sm_count, m))
        << m;
  }
  EXPECT_STREQ(route_name(route(plan, 12)), "sm90/nvfp4/mt1");
  EXPECT_STREQ(route_name(route(plan, 13)), "sm90/nvfp4/mt2");
  EXPECT_STREQ(route_name(route(plan, 48)), "sm90/nvfp4/group");
  EXPECT_STREQ(route_name(route(plan, 100)), "sm90/nvfp4/wide");
}

TEST(gemm_choice, is_for_one_format_and_shape_alone) {
  gemm_tuning_row rows[] = {row_for(1, 96, {gemm_method::mt4})};
  EXPECT_EQ(choice_of(planned(some_layout(), tuned_problem(tuning_of(rows))), 1).method,
            gemm_method::mt4);
  EXPECT_EQ(choice_of(planned<fp8>(some_layout(format_id::fp8), tuned_problem(tuning_of(rows))), 1)
                .method,
            gemm_method::mt1);
  for (auto field : {&gemm_tuning_row::n, &gemm_tuning_row::k}) {
    rows[0] = row_for(1, 96, {gemm_method::mt4});
    rows[0].*field += 1;
    EXPECT_EQ(choice_of(planned(some_layout(), tuned_problem(tuning_of(rows))), 1).method,
              gemm_method::mt1);
  }
}

TEST(gemm_choice, of_the_first_row_counts_wherever_others_lie_between) {
  gemm_tuning_row other = row_for(1, 96, {gemm_method::mt2});
  other.n += 64;
  gemm_tuning_row const rows[] = {other, row_for(8, 8, {gemm_method::mt4}), other,
                                  row_for(1, 16, {gemm_method::mt2}), other};
  auto const plan = planned(some_layout(), tuned_problem(tuning_of(rows)));
  EXPECT_EQ(plan.tuned[0].rows, rows + 1);
  EXPECT_EQ(plan.tuned[0].count, 3U);
  EXPECT_EQ(choice_of(plan, 8).method, gemm_method::mt4);
  EXPECT_EQ(choice_of(plan, 7).method, gemm_method::mt2);
  EXPECT_EQ(choice_of(plan, 17).method, gemm_method::mt4);
}

TEST(gemm_choice, of_the_caller_goes_before_that_of_the_device_and_that_before_the_rules) {
  gemm_tuning_row const device_row = gemm_table_h200[0];
  packed_layout const layout =
      hopper_layout(device_row.format, scale_mode::tensor, device_row.n, device_row.k);
  visit_format<int>(device_row.format, 0, [&](auto format) {
    using Format = decltype(format);
    std::int64_t const m = device_row.last_m;
    gemm_problem problem;
    problem.max_m = m;
    EXPECT_EQ(choice_of(planned<Format>(layout, problem), m), device_row.choice);

    gemm_choice const rule = detail::rule_choice<Format>(layout, true, false, 132, m);
    device_info other = hopper_h200();
    other.sm_count = 114;
    EXPECT_EQ(choice_of(planned<Format>(layout, problem, other), m),
              detail::rule_choice<Format>(layout, true, false, 114, m));

    gemm_tuning_row const own = {device_row.format, device_row.n, device_row.k, m, m, rule};
    problem.tuning = {&own, 1};
    EXPECT_EQ(choice_of(planned<Format>(layout, problem), m), rule);
    EXPECT_NE(rule, device_row.choice) << "a row that says what the rules say";
    return 0;
  });
}

TEST(gemm_choice, without_a_kernel_is_refused_in_one_sentence) {
  auto const refused = [](gemm_tuning_row row, packed_layout const& layout = some_layout(),
                          device_info const& device = hopper_h200()) {
    gemm_plan<nvfp4> plan;
    status const made = make_gemm_plan(layout, tuned_problem({&row, 1}), device, plan);
    if (made.ok()) return std::string();
    EXPECT_EQ(made.code, status_code::invalid_shape);
    return std::string(made.what);
  };
  std::string const sentence =
      "gemm plan: a row of tuning has a choice that no kernel takes for its rows of x, the weight "
      "and the device";
  gemm_tuning_row const wrong[] = {
      row_for(0, 8, {gemm_method::mt1}),
      row_for(9, 8, {gemm_method::mt1}),
      row_for(1, 8, {gemm_method::mt8}),
      row_for(1, 8, {gemm_method::simt}),
      row_for(1, 8, {gemm_method::mt1, 8}),
      row_for(1, 8, {gemm_method::mt1, 0, 1}),
      row_for(1, 8, {gemm_method::mt1, 0, 0, 0, 0, 80}),
      row_for(1, 8, {gemm_method::mt2, 16, 0, 0, 0, 96}),
      row_for(1, 8, {gemm_method::mt2, 0, 0, 0, 0, 56}),
      row_for(1, 8, {gemm_method::mt4, 0, 0, 0, 0, 128}),
      row_for(17, 32, {gemm_method::group, 32, 1, 0, 0, 128}),
      row_for(17, 33, {gemm_method::group, 32, 1}),
      row_for(17, 32, {gemm_method::group, 32, 2}),
      row_for(17, 32, {gemm_method::group, 64, 3}),
      row_for(17, 32, {gemm_method::group, 96, 2}),
      row_for(17, 32, {gemm_method::group, 128, 1}),
      row_for(17, 32, {gemm_method::group, 64, 0}),
      row_for(17, 32, {gemm_method::group, 64, 1, 1}),
      row_for(96, 128, {gemm_method::wide, 128, 0, 1}),
      row_for(97, 128, {gemm_method::wide, 64, 0, 1}),
      row_for(97, 128, {gemm_method::wide, 128, 1, 1}),
      row_for(97, 128, {gemm_method::wide, 128, 0, 0}),
      row_for(97, 128, {gemm_method::wide, 128, 0, 5}),
      row_for(97, 128, {gemm_method::wide, 128, 0, 2, 2}),
      row_for(97, 128, {gemm_method::wide, 128, 0, 2, 5}),
  };
  for (gemm_tuning_row const& row : wrong) {
    EXPECT_EQ(refused(row), sentence) << testing::PrintToString(row.choice);
  }
  gemm_tuning_row const right[] = {
      row_for(1, 2048, {gemm_method::mt4}),
      row_for(1, 32, {gemm_method::group, 32, 1}),
      row_for(1, 16, {gemm_method::mt1, 0, 0, 0, 0, 56}),
      row_for(1, 16, {gemm_method::mt2, 0, 0, 0, 0, 128}),
      row_for(1, 64, {gemm_method::group, 64, 2}),
      row_for(65, 96, {gemm_method::group, 96, 3}),
      row_for(97, 9999, {gemm_method::wide, 96, 0, 4}),
      row_for(97, 128, {gemm_method::wide, 128, 0, 1, 2}),
  };
  for (gemm_tuning_row const& row : right) {
    EXPECT_EQ(refused(row), "") << testing::PrintToString(row.choice);
  }
  // What only compute capability 9.0 has, elsewhere.
  device_info ampere = hopper_h200();
  ampere.compute_capability = 80;
  EXPECT_EQ(refused(right[0], some_layout(), ampere), "");
  EXPECT_EQ(refused(right[1], some_layout(), ampere), sentence);
  EXPECT_EQ(refused(right[4], some_layout(), ampere), sentence);
  // A cluster has no more CTAs than there are steps of k.
  gemm_tuning_row row = row_for(97, 128, {gemm_method::wide, 128, 0, 3});
  row.n = 64;
  row.k = 128;
  packed_layout const small = hopper_layout(format_id::nvfp4, scale_mode::tensor, 64, 128);
  EXPECT_EQ(refused(row, small), sentence);
  row.choice.ranks = 2;
  EXPECT_EQ(refused(row, small), "");
  gemm_plan<fp8> fp8_plan;
  row = row_for(9, 16, {gemm_method::mt2, 0, 0, 0, 0, 96}, format_id::fp8);
  EXPECT_EQ(
      make_gemm_plan(some_layout(format_id::fp8), tuned_problem({&row, 1}), hopper_h200(), fp8_plan)
          .code,
      status_code::invalid_shape);
  // Rows of other weights are not looked at.
  row = wrong[0];
  row.n = 64;
  EXPECT_EQ(refused(row), "");
}

TEST(gemm_choice, is_not_read_where_nothing_is_free) {
  gemm_tuning_row const rows[] = {row_for(1, 96, {gemm_method::mt4}, format_id::fp8)};
  gemm_problem problem = tuned_problem(tuning_of(rows), 16);
  // Block scales have kernels of their own times.
  EXPECT_EQ(
      choice_of(planned<fp8>(some_layout(format_id::fp8, scale_mode::block), problem), 1).method,
      gemm_method::mt1);
  problem.candidates = 1;
  EXPECT_EQ(choice_of(planned<fp8>(some_layout(format_id::fp8), problem), 1).method,
            gemm_method::mt1);
  packed_layout volta;
  ASSERT_TRUE(make_packed_layout(format_id::fp8, scale_mode::tensor, some_n, some_k, dtype::f16,
                                 volta_v100(), volta)
                  .ok());
  problem.candidates = 0;
  auto const plan = planned<fp8>(volta, problem, volta_v100());
  EXPECT_STREQ(route_name(route(plan, 1)), "sm70/fp8/mt1");
}

TEST(gemm_choice, of_warpgroups_has_room_for_ordered_x) {
  gemm_tuning_row const rows[] = {row_for(3, 12, {gemm_method::group, 32, 1})};
  auto const bytes = [&](gemm_tuning tuning, std::int64_t max_m) {
    auto const plan = planned(some_layout(), tuned_problem(tuning, max_m));
    return plan.workspace_bytes - plan.workspace_zero_bytes;
  };
  std::size_t const row_bytes = some_k * 2;
  EXPECT_EQ(bytes({}, 16), 0U);
  EXPECT_EQ(bytes(tuning_of(rows), 2), 0U);
  EXPECT_EQ(bytes(tuning_of(rows), 6), 8 * row_bytes);
  EXPECT_EQ(bytes(tuning_of(rows), 16), 16 * row_bytes);
}

TEST(gemm_choice, of_the_rules_is_their_shape_for_many_rows) {
  for (std::int64_t const n : {64, 3584, 5120, 34816}) {
    packed_layout const layout = hopper_layout(format_id::fp8, scale_mode::tensor, n, 5120);
    for (std::int64_t m = 97; m < 2100; m += 7) {
      for (int const sm_count : {1, 78, 132}) {
        auto const shape = detail::sm90::choose_wide_shape(layout, m, sm_count);
        gemm_choice const choice = detail::rule_choice<fp8>(layout, true, false, sm_count, m);
        auto const again = detail::sm90::wide_shape_of(layout, m, sm_count, choice.rows,
                                                       choice.ranks, choice.tail_ranks);
        EXPECT_EQ(again.rows, shape.rows) << n << " " << m << " " << sm_count;
        EXPECT_EQ(again.ranks, shape.ranks) << n << " " << m << " " << sm_count;
        EXPECT_EQ(again.tail_tiles, shape.tail_tiles) << n << " " << m << " " << sm_count;
        EXPECT_EQ(again.tail_ranks, shape.tail_ranks) << n << " " << m << " " << sm_count;
      }
    }
  }
}

TEST(gemm_tables, have_rows_that_can_run_and_do_not_overlap) {
  for (detail::device_table const& table : detail::device_tables) {
    device_info device = hopper_h200();
    device.compute_capability = table.compute_capability;
    device.sm_count = table.sm_count;
    EXPECT_EQ(detail::table_of(device), table.rows);
    for (gemm_tuning_row const& row : table.rows) {
      packed_layout layout;
      ASSERT_TRUE(make_packed_layout(row.format, scale_mode::tensor, row.n, row.k, dtype::f16,
                                     device, layout)
                      .ok());
      std::string const text = std::to_string(row.n) + " x " + std::to_string(row.k) + " m " +
                               std::to_string(row.first_m) + ".." + std::to_string(row.last_m);
      visit_format<int>(row.format, 0, [&](auto format) {
        gemm_problem problem;
        problem.max_m = row.last_m;
        auto const plan = planned<decltype(format)>(layout, problem, device);
        for (std::int64_t m = row.first_m; m <= row.last_m; ++m) {
          EXPECT_EQ(choice_of(plan, m), row.choice) << text << " at " << m;
        }
        return 0;
      });
    }
  }
}

}  // namespace
}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <qpn/detail/tile_map.hpp>
#include <qpn/detail/work_split.hpp>
#include <qpn/packed_weight.hpp>
#include <vector>

#include "support/devices.hpp"
#include "support/random.hpp"

namespace {

using qpn::dtype;
using qpn::format_id;
using qpn::scale_mode;
using qpn::detail::choose_ctas;
using qpn::detail::work_split;
using qpn::test::random_source;

/// Checks the closed forms against a walk over every unit of work.
void expect_exact_cover(work_split const& split) {
  SCOPED_TRACE(testing::Message() << split.tile_groups << " groups, " << split.steps << " steps, "
                                  << split.ctas << " CTAs");
  ASSERT_EQ(split.first_unit(0), 0);
  ASSERT_EQ(split.last_unit(split.ctas - 1), split.units());
  std::int64_t unit = 0;
  std::vector<std::vector<std::int32_t>> ctas_of_group(static_cast<std::size_t>(split.tile_groups));
  for (std::int32_t c = 0; c < split.ctas; ++c) {
    ASSERT_EQ(split.first_unit(c), unit) << "CTA " << c;
    ASSERT_GT(split.last_unit(c), unit) << "CTA " << c << " has no work";
    for (; unit < split.last_unit(c); ++unit) {
      ASSERT_EQ(split.cta_of_unit(unit), c) << "unit " << unit;
      std::vector<std::int32_t>& ctas = ctas_of_group[static_cast<std::size_t>(unit / split.steps)];
      if (ctas.empty() || ctas.back() != c) ctas.push_back(c);
    }
  }
  for (std::int64_t group = 0; group < split.tile_groups; ++group) {
    std::vector<std::int32_t> const& ctas = ctas_of_group[static_cast<std::size_t>(group)];
    ASSERT_EQ(split.first_cta(group), ctas.front()) << "group " << group;
    ASSERT_EQ(split.cta_count(group), static_cast<std::int32_t>(ctas.size())) << "group " << group;
    ASSERT_EQ(ctas.back() - ctas.front() + 1, split.cta_count(group)) << "group " << group;
  }
}

/// Checks halves_alike against what it says of every unit.
void expect_halves_are_alike_as_told(work_split const& split) {
  bool alike = split.ctas % 2 == 0;
  for (std::int32_t c = 0; alike && c < split.ctas / 2; ++c) {
    std::int64_t const other = c + split.ctas / 2;
    alike = split.first_unit(other) - split.first_unit(c) == split.units() / 2 &&
            split.last_unit(other) - split.last_unit(c) == split.units() / 2 &&
            split.units() / 2 % split.steps == 0 && split.units() % 2 == 0;
  }
  EXPECT_EQ(split.halves_alike(), alike)
      << split.tile_groups << " groups, " << split.steps << " steps, " << split.ctas << " CTAs";
}

/// Mean over maximum of the units per multiprocessor, CTAs dealt in turn.
double balance(work_split const& split, int sm_count) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(sm_count));
  for (std::int32_t c = 0; c < split.ctas; ++c) {
    units[static_cast<std::size_t>(c % sm_count)] += split.last_unit(c) - split.first_unit(c);
  }
  auto const total =
      static_cast<double>(std::accumulate(units.begin(), units.end(), std::int64_t{0}));
  return total / sm_count / static_cast<double>(*std::max_element(units.begin(), units.end()));
}

}  // namespace

TEST(work_split, small_shapes_are_covered_exactly_once_for_every_count_of_ctas) {
  for (std::int64_t groups = 1; groups <= 6; ++groups) {
    for (std::int64_t steps = 1; steps <= 7; ++steps) {
      for (std::int32_t ctas = 1; ctas <= groups * steps; ++ctas) {
        expect_exact_cover({groups, steps, ctas});
        expect_halves_are_alike_as_told({groups, steps, ctas});
      }
    }
  }
}

TEST(work_split, random_shapes_are_covered_exactly_once) {
  random_source random(1);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << random.seed() << ", round " << round);
    std::int64_t const groups = random.integer(1, 60);
    std::int64_t const steps = random.integer(1, 90);
    auto const sm_count = static_cast<std::int32_t>(random.integer(1, 200));
    expect_exact_cover({groups, steps, choose_ctas(groups * steps, sm_count)});
    expect_halves_are_alike_as_told({groups, steps, choose_ctas(groups * steps, sm_count)});
  }
}

TEST(work_split, ctas_grow_with_the_work_up_to_two_for_each_multiprocessor) {
  EXPECT_EQ(choose_ctas(1, 80), 1);
  EXPECT_EQ(choose_ctas(15, 80), 1);
  EXPECT_EQ(choose_ctas(16, 80), 1);
  EXPECT_EQ(choose_ctas(17, 80), 2);
  EXPECT_EQ(choose_ctas(159 * 16, 80), 159);
  EXPECT_EQ(choose_ctas(1 << 20, 80), 160);
  EXPECT_EQ(choose_ctas(std::int64_t{1} << 52, qpn::detail::max_sm_count), 2048);
}

TEST(work_split, the_largest_work_does_not_overflow) {
  work_split const split{std::int64_t{1} << 26, (std::int64_t{1} << 26) - 1,
                         2 * qpn::detail::max_sm_count};
  EXPECT_EQ(split.last_unit(split.ctas - 1), split.units());
  EXPECT_EQ(split.cta_of_unit(split.units() - 1), split.ctas - 1);
  EXPECT_EQ(split.cta_of_unit(0), 0);
}

TEST(work_split, tp4_shapes_of_the_target_model_are_balanced_on_a_v100) {
  struct shape {
    char const* name;
    format_id format;
    std::int64_t n;
    std::int64_t k;
  };
  shape const shapes[] = {
      {"mlp gate_up", format_id::nvfp4, 8704, 5120},
      {"mlp down", format_id::nvfp4, 5120, 4352},
      {"gdn in_proj_qkvz", format_id::fp8, 4096, 5120},
      {"attention qkv", format_id::fp8, 3584, 5120},
      {"out_proj, o_proj", format_id::fp8, 5120, 1536},
      {"lm_head shard", format_id::nvfp4, 62080, 5120},
      {"mtp gate_up", format_id::dense16, 8704, 5120},
      {"mtp down", format_id::dense16, 5120, 4352},
      {"mtp qkv", format_id::dense16, 3584, 5120},
      {"mtp o_proj", format_id::dense16, 5120, 1536},
  };
  for (shape const& each : shapes) {
    scale_mode const scale =
        each.format == format_id::dense16 ? scale_mode::none : scale_mode::tensor;
    qpn::packed_layout layout;
    qpn::status const made = qpn::make_packed_layout(each.format, scale, each.n, each.k,
                                                     dtype::bf16, qpn::test::volta_v100(), layout);
    ASSERT_TRUE(made.ok()) << made.what;
    work_split const split = qpn::visit_format<work_split>(each.format, {}, [&](auto format) {
      return qpn::detail::split_of<decltype(format)>(layout);
    });
    expect_exact_cover(split);
    EXPECT_GE(balance(split, 80), 0.97) << each.name << ", " << layout.ctas << " CTAs";
    EXPECT_TRUE(split.halves_alike()) << each.name << ": two teams share what they stage of x";
  }
}

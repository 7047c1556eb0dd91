// SPDX-License-Identifier: Apache-2.0
#include "qpn/gemm_route.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

namespace qpn::test {
namespace {

TEST(gemm_route, has_a_place_and_a_name_of_its_own) {
  std::set<std::string> names;
  for (int i = 0; i < gemm_route_count; ++i) {
    EXPECT_EQ(route_index(route_at(i)), i);
    std::string const name = route_name(route_at(i));
    EXPECT_TRUE(names.insert(name).second) << name;
    gemm_route other = route_at(i);
    other.emulated = !other.emulated;
    EXPECT_EQ(route_name(other),
              other.emulated ? name + "/emulated" : name.substr(0, name.size() - 9));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(gemm_route_count));
}

TEST(gemm_route, is_named_by_architecture_elements_and_method) {
  EXPECT_STREQ(route_name({}), "sm70/nvfp4/mt1");
  EXPECT_STREQ(route_name({gemm_arch::sm70, gemm_operand::fp8, gemm_method::mt2, false}),
               "sm70/fp8/mt2");
  EXPECT_STREQ(route_name({gemm_arch::sm70, gemm_operand::bf16, gemm_method::mt1, true}),
               "sm70/bf16/mt1/emulated");
  EXPECT_STREQ(route_name({gemm_arch::sm70, gemm_operand::f16, gemm_method::wide, false}),
               "sm70/f16/wide");
  EXPECT_STREQ(route_name({gemm_arch::sm70, gemm_operand::nvfp4, gemm_method::dense, false}),
               "sm70/nvfp4/dense");
  EXPECT_STREQ(route_name({gemm_arch::sm70, gemm_operand::f16, gemm_method::simt, false}),
               "sm70/f16/simt");
  EXPECT_STREQ(route_name({gemm_arch::sm90, gemm_operand::nvfp4, gemm_method::mt2, false, true}),
               "sm90/nvfp4/mt2/bf16");
  EXPECT_STREQ(detail::gemm_operand_names[static_cast<int>(operand_of(dtype::e2m1))], "nvfp4");
  EXPECT_STREQ(detail::gemm_operand_names[static_cast<int>(operand_of(dtype::e4m3))], "fp8");
  EXPECT_STREQ(detail::gemm_operand_names[static_cast<int>(operand_of(dtype::f16))], "f16");
  EXPECT_STREQ(detail::gemm_operand_names[static_cast<int>(operand_of(dtype::bf16))], "bf16");
}

TEST(gemm_census, counts_launches_on_another_route_than_the_plans) {
  gemm_census census;
  gemm_route const group{gemm_arch::sm90, gemm_operand::fp8, gemm_method::group, false};
  gemm_route const narrow{gemm_arch::sm90, gemm_operand::fp8, gemm_method::mt4, false};
  census.count(group, group);
  EXPECT_EQ(census.fallbacks, 0u);
  census.count(narrow, group);
  EXPECT_EQ(census.fallbacks, 1u);
  EXPECT_EQ(census.launches(group), 1u);
  EXPECT_EQ(census.launches(narrow), 1u);
}

TEST(gemm_census, counts_each_route_on_its_own) {
  gemm_census census;
  for (int i = 0; i < gemm_route_count; ++i) {
    for (int times = 0; times <= i; ++times) census.count(route_at(i));
  }
  for (int i = 0; i < gemm_route_count; ++i) {
    EXPECT_EQ(census.launches(route_at(i)), static_cast<std::uint64_t>(i + 1)) << i;
  }
}

}  // namespace
}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <qpn/arch/sm80/bf16_operand.hpp>
#include <qpn/arch/sm80/gemm_params.hpp>
#include <qpn/arch/sm80/gemm_policy.hpp>
#include <qpn/arch/sm80/weight_operand.hpp>

namespace qpn::detail::sm80 {
namespace {

constexpr int h200 = 132;  // multiprocessors
using nvfp4_operand = weight_operand<nvfp4, dtype::e2m1>;
using fp8_operand = weight_operand<fp8, dtype::e4m3>;

template <class Operand, int RowTiles>
int chosen(std::int64_t ctas, int warps, int sm_count = h200) {
  return choose_registers(gemm_policy<Operand, RowTiles>::choices, ctas, warps, sm_count);
}

TEST(gemm_policy, counts_the_ctas_that_a_multiprocessor_holds) {
  EXPECT_EQ(resident_ctas(56, 4), 9);
  EXPECT_EQ(resident_ctas(96, 4), 5);
  EXPECT_EQ(resident_ctas(128, 8), 2);
  EXPECT_EQ(resident_ctas(168, 8), 1);
  EXPECT_EQ(resident_ctas(16, 8), 8) << "64 warps";
  EXPECT_EQ(resident_ctas(255, 16), 0);
}

TEST(gemm_policy, takes_the_most_registers_with_which_all_ctas_are_resident) {
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1088, 4)), 56);  // gate and up: 9 x 132 places
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1188, 4)), 56);
  EXPECT_EQ((chosen<nvfp4_operand, 1>(272, 4)), 128);
  EXPECT_EQ((chosen<nvfp4_operand, 1>(160, 8)), 128);  // down
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1, 1)), 128);
  EXPECT_EQ((chosen<nvfp4_operand, 2>(272, 4)), 128);
}

TEST(gemm_policy, fills_the_last_wave_where_there_are_several) {
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1940, 4)), 64);   // 1.84 waves, as full as 3.67 with 128
  EXPECT_EQ((chosen<nvfp4_operand, 1>(2113, 4)), 128);  // 4.002; 2.001 with 64
  EXPECT_EQ((chosen<nvfp4_operand, 2>(1088, 4)), 96);   // 1.65; 2.06 with 128
}

TEST(gemm_policy, takes_the_fewest_registers_of_many_waves) {
  EXPECT_EQ((chosen<nvfp4_operand, 1>(4225, 4)), 64);  // 4.001 waves
  EXPECT_EQ((chosen<nvfp4_operand, 1>(7760, 4)), 64);  // lm_head
  EXPECT_EQ((chosen<nvfp4_operand, 2>(7760, 4)), 96);
}

TEST(gemm_policy, has_registers_that_spill_for_one_wave_alone) {
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1188, 4)), 56);
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1189, 4)), 128) << "3 waves of 528; 2 of 1056 with 64";
  EXPECT_EQ((chosen<nvfp4_operand, 1>(1188, 4, 131)), 128);
}

TEST(gemm_policy, halves_the_strips_of_weights_that_have_few) {
  for (format_id const format : {format_id::nvfp4, format_id::fp8}) {
    EXPECT_TRUE(prefers_halves(format, 1, 160, 1, h200));  // down
    EXPECT_TRUE(prefers_halves(format, 1, 264, 1, h200));
    EXPECT_FALSE(prefers_halves(format, 1, 272, 1, h200));
    EXPECT_FALSE(prefers_halves(format, 1, 128, 2, h200)) << "two row blocks";
    EXPECT_TRUE(prefers_halves(format, 2, 160, 1, h200));
    EXPECT_FALSE(prefers_halves(format, 2, 272, 1, h200));
    EXPECT_FALSE(prefers_halves(format, 4, 1, 1, h200));
  }
  EXPECT_FALSE(prefers_halves(format_id::dense16, 2, 1, 1, h200));
}

template <int RowTiles>
void halves_of_two_formats() {
  EXPECT_TRUE((gemm_policy<nvfp4_operand, RowTiles>::has_halves));
  EXPECT_TRUE((gemm_policy<fp8_operand, RowTiles>::has_halves));
  EXPECT_FALSE((gemm_policy<bf16_operand<fp8>, RowTiles>::has_halves));
  EXPECT_FALSE((gemm_policy<weight_operand<fp8, dtype::e4m3, true>, RowTiles>::has_halves));
}

TEST(gemm_policy, has_halves_of_nvfp4_and_fp8_for_f16_rows) {
  halves_of_two_formats<1>();
  halves_of_two_formats<2>();
  EXPECT_FALSE((gemm_policy<fp8_operand, 4>::has_halves));
}

TEST(gemm_policy, has_all_halves_resident_at_once) {
  auto const chosen_of = [](auto policy, int strips) {
    return choose_registers(decltype(policy)::half_choices, 2 * strips, 8, h200);
  };
  gemm_policy<fp8_operand, 1> const one;
  gemm_policy<fp8_operand, 2> const two;
  EXPECT_EQ(chosen_of(one, 160), 80);
  EXPECT_EQ(chosen_of(two, 128), 128) << "two for each multiprocessor";
  EXPECT_EQ(chosen_of(two, 132), 128);
  EXPECT_EQ(chosen_of(two, 133), 80) << "three";
  EXPECT_EQ(resident_ctas(80, 8), 3);
}

TEST(gemm_policy, keeps_two_batches_where_there_are_registers) {
  EXPECT_EQ((gemm_policy<nvfp4_operand, 1>::batches(128, false)), 2);
  EXPECT_EQ((gemm_policy<nvfp4_operand, 1>::batches(64, false)), 1);
  EXPECT_EQ((gemm_policy<nvfp4_operand, 1>::batches(128, true)), 1) << "with candidates";
  EXPECT_EQ((gemm_policy<fp8_operand, 1>::batches(128, false)), 2);
  EXPECT_EQ((gemm_policy<fp8_operand, 2>::batches(128, false)), 1);
  EXPECT_EQ((gemm_policy<fp8_operand, 4>::batches(128, false)), 1);
  EXPECT_EQ((gemm_policy<bf16_operand<fp8>, 2>::batches(128, false)), 1);
  EXPECT_EQ((gemm_policy<nvfp4_operand, 1>::batches(80, false, 1)), 2);
  EXPECT_EQ((gemm_policy<nvfp4_operand, 1>::batches(80, false)), 1);
  EXPECT_EQ((gemm_policy<fp8_operand, 2>::batches(128, false, 1)), 1);
  EXPECT_EQ((gemm_policy<fp8_operand, 2>::batches(80, false, 1, x_order::fragments)), 1);
  EXPECT_EQ((gemm_policy<fp8_operand, 2>::batches(128, false, 1, x_order::fragments)), 2);
  EXPECT_EQ((gemm_policy<fp8_operand, 2>::batches(128, false, 2, x_order::fragments)), 1);
  EXPECT_EQ((gemm_policy<fp8_operand, 1>::batches(128, false, 1, x_order::fragments)), 2);
}

TEST(gemm_policy, starts_with_two_batches_where_the_launch_before_does_not_wait_for_them) {
  constexpr std::int64_t fp8_half = 2048;  // bytes of a batch
  constexpr std::int64_t nvfp4_half = 1152;
  EXPECT_TRUE(starts_with_two(320 * 8, fp8_half, h200)) << "tp1.gdn_out";
  EXPECT_TRUE(starts_with_two(320 * 8, nvfp4_half, h200)) << "tp1.down";
  EXPECT_TRUE(starts_with_two(256 * 8, fp8_half, h200)) << "tp4.gdn_in";
  EXPECT_FALSE(starts_with_two(512 * 4, 2 * fp8_half, h200)) << "tp1.gdn_in";
  EXPECT_FALSE(starts_with_two(448 * 4, 2 * fp8_half, h200)) << "tp1.attn_qkv";
  EXPECT_TRUE(starts_with_two(132 * 12, 4096, h200)) << "96 KB each";
  EXPECT_FALSE(starts_with_two(132 * 12 + 1, 4096, h200));
}

TEST(gemm_policy, reads_fragments_of_x_for_few_rows_by_fp8) {
  EXPECT_TRUE((gemm_policy<fp8_operand, 1>::has_fragments));
  EXPECT_TRUE((gemm_policy<fp8_operand, 2>::has_fragments));
  EXPECT_FALSE((gemm_policy<fp8_operand, 4>::has_fragments));
  EXPECT_FALSE((gemm_policy<nvfp4_operand, 1>::has_fragments));
  EXPECT_FALSE((gemm_policy<bf16_operand<fp8>, 1>::has_fragments));
  EXPECT_FALSE((gemm_policy<weight_operand<fp8, dtype::e4m3, true>, 1>::has_fragments));
}

TEST(gemm_policy, passes_by_what_does_not_fit) {
  constexpr register_choices choices{3, {64, 96, 255}};
  EXPECT_EQ(choose_registers(choices, 1, 16, h200), 96);
  EXPECT_EQ(choose_registers(choices, 1000, 16, h200), 64);
}

TEST(gemm_policy, has_one_choice_for_other_operands) {
  EXPECT_EQ((gemm_policy<bf16_operand<nvfp4>, 1>::choices.count), 1);
  EXPECT_EQ((gemm_policy<weight_operand<dense16, dtype::f16>, 1>::choices.count), 1);
  EXPECT_EQ((gemm_policy<nvfp4_operand, 4>::choices.count), 1);
}

TEST(gemm_policy, halves_strips_of_16_bit_weights_beside_another_launch) {
  using dense = weight_operand<dense16, dtype::bf16>;
  EXPECT_TRUE((gemm_policy<dense, 1>::has_halves && gemm_policy<dense, 1>::halves_beside));
  EXPECT_TRUE((gemm_policy<dense, 2>::has_halves && gemm_policy<dense, 2>::halves_beside));
  EXPECT_FALSE((gemm_policy<dense, 4>::has_halves));
  EXPECT_FALSE((gemm_policy<bf16_operand<dense16>, 1>::has_halves));
  EXPECT_FALSE((gemm_policy<fp8_operand, 1>::halves_beside));
  EXPECT_EQ((gemm_policy<dense, 1>::half_choices.count), 1);
  int const registers = gemm_policy<dense, 1>::half_choices.values[0];
  EXPECT_LE(registers * 8 * warp_lanes, 128 * 4 * warp_lanes) << "the place of four warps";

  gemm_plan<dense16> plan;
  plan.layout.format = format_id::dense16;
  plan.layout.padded_n = 128;
  plan.layout.ctas = 8;
  plan.sm_count = h200;
  gemm_args args;
  args.m = 8;
  EXPECT_EQ((form_of<dense, 1>(plan, args).halves), 2);
  args.overlap_previous = true;
  EXPECT_EQ((form_of<dense, 1>(plan, args).halves), 2);
  args.beside_previous = true;
  EXPECT_EQ((form_of<dense, 1>(plan, args).halves), 1);
  EXPECT_EQ((form_of<dense, 1>(plan, args).registers), registers);
  plan.problem.act = activation::silu_gate;
  EXPECT_EQ((form_of<dense, 1>(plan, args).halves), 2) << "gate and up meet in a CTA";
}

}  // namespace
}  // namespace qpn::detail::sm80

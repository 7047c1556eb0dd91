// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/gemm_call.hpp"
#include "support/aligned_bytes.hpp"
#include "support/devices.hpp"
#include "support/emulated_gemm.hpp"

namespace qpn::test {

/// y f32 [m, n] of the same problem and x on the emulator.
[[nodiscard]] inline std::vector<float> emulated_y(gpu_gemm const& gemm,
                                                   gemm_operands const& operands) {
  gpu_weight const& weight = gemm.weight();
  packed_layout const& layout = weight.layout();
  std::vector<float> y(static_cast<std::size_t>(operands.m * layout.n));
  visit_format<int>(layout.format, 0, [&](auto format) {
    gemm_plan<decltype(format)> plan;
    bool const mma16 = layout.id == layout_id::sm80_mma16;
    require(make_gemm_plan(layout, gemm.problem(), mma16 ? hopper_h200() : volta_v100(), plan));
    aligned_bytes packed(weight.packed().size());
    std::copy(weight.packed().begin(), weight.packed().end(), packed.data());
    aligned_bytes workspace(plan.workspace_bytes);
    std::fill_n(workspace.data(), plan.workspace_zero_bytes, std::byte{0});
    gemm_args args;
    args.m = operands.m;
    args.x = operands.x.data();
    args.ldx = layout.k;
    args.weight = {layout, packed.data()};
    args.y = y.data();
    args.ldy = layout.n;
    emulated_call const call = emulate_gemm(plan, args, {workspace.data(), workspace.size()});
    EXPECT_TRUE(call.report.ok()) << call.report.text();
    return 0;
  });
  return y;
}

}  // namespace qpn::test

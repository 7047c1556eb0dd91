// SPDX-License-Identifier: Apache-2.0
#include "own_kernels.hpp"

#include <algorithm>
#include <stdexcept>

#include "constants.hpp"
#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/detail/work_split.hpp"

namespace qpn::bench::v100 {

namespace {

using detail::work_split;
using detail::sm70::warps_per_cta;

constexpr int resident = detail::ctas_per_sm;

constexpr own_kernel kernels[] = {
    {format_id::nvfp4, dtype::e2m1, 1, 1, resident, 8, "nvfp4 mt1",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 1>"},
    {format_id::nvfp4, dtype::e2m1, 2, 1, resident, 16, "nvfp4 mt2",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 2>"},
    {format_id::fp8, dtype::e4m3, 1, 1, resident, 8, "fp8 mt1",
     "gemm_kernel<weight_operand<fp8, (dtype)1>, 1>"},
    {format_id::fp8, dtype::e4m3, 2, 1, resident, 16, "fp8 mt2",
     "gemm_kernel<weight_operand<fp8, (dtype)1>, 2>"},
    {format_id::dense16, dtype::f16, 1, 1, resident, 8, "f16 mt1",
     "gemm_kernel<weight_operand<dense16, (dtype)3>, 1>"},
    {format_id::dense16, dtype::f16, 2, 1, resident, 16, "f16 mt2",
     "gemm_kernel<weight_operand<dense16, (dtype)3>, 2>"},
    {format_id::dense16, dtype::bf16, 1, 1, resident, 8, "bf16 mt1",
     "gemm_kernel<weight_operand<dense16, (dtype)4>, 1>"},
    {format_id::dense16, dtype::bf16, 2, 1, resident, 16, "bf16 mt2",
     "gemm_kernel<weight_operand<dense16, (dtype)4>, 2>"},
};

work_split split_of(packed_layout const& layout) {
  switch (layout.format) {
    case format_id::nvfp4: return detail::split_of<nvfp4>(layout);
    case format_id::fp8: return detail::split_of<fp8>(layout);
    case format_id::dense16: break;
  }
  return detail::split_of<dense16>(layout);
}

void expect_equal(own_kernel const& kernel, char const* what, double in_sass, double in_program) {
  if (in_sass == in_program) return;
  throw std::runtime_error("v100 model: the main loop of " + std::string(kernel.name) + " has " +
                           std::to_string(in_sass) + " " + what + " in the SASS table, " +
                           std::to_string(in_program) + " in the program");
}

loop_turn turn_of(own_kernel const& kernel, sass_kernel const& sass, loop_record const& loop) {
  expect_equal(kernel, "LDG", sass["ldg"], loop.weight_loads + loop.activation_loads);
  expect_equal(kernel, "LDS", sass["lds"], loop.shared_loads);
  expect_equal(kernel, "STS", sass["sts"], loop.shared_stores);
  expect_equal(kernel, "HMMA", sass["tensor"], 4 * loop.products);
  loop_turn turn;
  turn.dram_bytes = loop.weight_bytes / kernel.row_blocks;
  turn.l2_bytes = loop.weight_bytes + loop.activation_bytes;
  turn.instructions = sass["instructions"];
  turn.alu = sass["alu"];
  turn.fma = sass["fma"];
  turn.fp16 = sass["fp16"];
  turn.xu = sass["xu"];
  turn.hmma = sass["tensor"];
  turn.wavefronts = loop.wavefronts;
  turn.stall_cycles = sass["stall_cycles"];
  turn.unhidden = 0.5;
  return turn;
}

/// The sums of 8 warps through shared memory, one row tile after the other.
double add_warps_cycles(own_kernel const& kernel, reduction_record const& record, int residents) {
  double const wavefronts = warps_per_cta * (record.store_wavefronts + record.load_wavefronts);
  return kernel.row_tiles * shared_sum_cycles(2, wavefronts, residents);
}

/// Stores and their fence, the ticket and its two barriers.
double leave_plane_cycles() {
  return 3 * l2_latency.value + 2 * barrier_cycles.value + shared_latency.value;
}

/// The planes of other CTAs, which the machine code loads four at a time, then up to three in two
/// steps.
double add_planes_cycles(std::int32_t parties) {
  std::int32_t const steps = parties / 4 + std::min(parties % 4, 2);
  return steps * l2_latency.value;
}

/// Scales from L2, then the stores, for which nothing waits.
double finish_cycles() {
  return l2_latency.value;
}

/// The parts of CTA c: its run of units, cut where a tile group ends.
std::vector<launch_part> parts_of(work_split const& split, double add_warps, std::int64_t c) {
  std::vector<launch_part> parts;
  for (std::int64_t unit = split.first_unit(c); unit < split.last_unit(c);) {
    std::int64_t const group = unit / split.steps;
    std::int64_t const end = std::min((group + 1) * split.steps, split.last_unit(c));
    std::int64_t const count = end - unit;
    launch_part part;
    for (int warp = 0; warp < warps_per_cta; ++warp) {
      std::int64_t const first = count * warp / warps_per_cta;
      std::int64_t const last = count * (warp + 1) / warps_per_cta;
      part.turns.push_back(static_cast<double>(last - first));
    }
    part.reduce_cycles = add_warps;
    if (count == split.steps) {
      part.reduce_cycles += finish_cycles();
    } else {
      part.reduce_cycles += leave_plane_cycles();
      part.group = group;
      part.last_cycles = add_planes_cycles(split.cta_count(group)) + finish_cycles();
    }
    parts.push_back(part);
    unit = end;
  }
  return parts;
}

/// As many CTAs and warps as the kernel has, each with an equal part of its turns, which only load.
launch read_of(launch const& work, loop_record const& loop, int row_blocks) {
  launch read;
  read.turn.dram_bytes = work.turn.dram_bytes;
  read.turn.l2_bytes = work.turn.dram_bytes;
  read.turn.instructions = loop.weight_loads / row_blocks;
  read.turn.wavefronts = loop.weight_wavefronts / row_blocks;
  read.turn.stall_cycles = read.turn.instructions;
  read.turn.unhidden = work.turn.unhidden;
  read.ctas_per_sm = work.ctas_per_sm;
  read.start_cycles = work.start_cycles;
  double const turns = work.dram_bytes() / work.turn.dram_bytes;
  auto const warps = static_cast<double>(work.ctas.size()) * warps_per_cta;
  launch_part part;
  part.turns.assign(warps_per_cta, turns / warps);
  read.ctas.assign(work.ctas.size(), {part});
  return read;
}

}  // namespace

std::span<own_kernel const> own_kernels() {
  return kernels;
}

own_kernel const& kernel_for(format_id format, dtype code_type, std::int64_t m) {
  for (own_kernel const& kernel : kernels) {
    if (kernel.format == format && kernel.code_type == code_type && m >= 1 && m <= kernel.max_m) {
      return kernel;
    }
  }
  throw std::invalid_argument("v100 model: no kernel takes " + std::to_string(m) + " rows of " +
                              to_string(format));
}

packed_layout v100_layout(format_id format, dtype code_type, std::int64_t n, std::int64_t k) {
  device_info device;
  device.compute_capability = 70;
  device.sm_count = static_cast<int>(sm_count.value);
  scale_mode const scale = format == format_id::dense16 ? scale_mode::none : scale_mode::tensor;
  packed_layout layout;
  status const made = make_packed_layout(format, scale, n, k, code_type, device, layout);
  if (!made.ok()) throw std::invalid_argument(std::string("v100 model: ") + made.what);
  return layout;
}

own_launch make_own_launch(sass_table const& table, own_kernel const& kernel, std::int64_t n,
                           std::int64_t k, int m) {
  own_launch made;
  made.kernel = &kernel;
  made.sass = &table.kernel(kernel.symbol);
  made.loop = record_loop(kernel.format, kernel.code_type, kernel.row_tiles, k,
                          std::min(m, detail::sm70::tile_m * kernel.row_tiles));
  made.reduction = record_reduction(kernel.format, kernel.code_type, kernel.row_tiles);
  made.layout = v100_layout(kernel.format, kernel.code_type, n, k);
  work_split const split = split_of(made.layout);

  made.work.turn = turn_of(kernel, *made.sass, made.loop);
  made.work.ctas_per_sm = kernel.ctas_per_sm;
  made.work.start_cycles = prologue_cycles.value;
  auto const ctas =
      static_cast<std::size_t>(split.ctas) * static_cast<std::size_t>(kernel.row_blocks);
  double const add_warps =
      add_warps_cycles(kernel, made.reduction, resident_ctas(kernel.ctas_per_sm, ctas));
  for (std::int64_t c = 0; c < split.ctas; ++c) {
    for (int block = 0; block < kernel.row_blocks; ++block) {
      made.work.ctas.push_back(parts_of(split, add_warps, c));
      for (launch_part& part : made.work.ctas.back()) {  // row blocks share no planes
        if (part.group >= 0) part.group = part.group * kernel.row_blocks + block;
      }
    }
  }
  made.read = read_of(made.work, made.loop, kernel.row_blocks);
  return made;
}

}  // namespace qpn::bench::v100

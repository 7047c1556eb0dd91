// SPDX-License-Identifier: Apache-2.0
#include "own_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "constants.hpp"
#include "qpn/arch/sm70/gemm_program.hpp"
#include "qpn/detail/tile_map.hpp"
#include "qpn/detail/work_split.hpp"
#include "qpn/gemm_types.hpp"

namespace qpn::bench::v100 {

namespace {

using detail::work_split;
using detail::sm70::shares_per_part;

constexpr own_kernel kernels[] = {
    {format_id::nvfp4, dtype::e2m1, 1, "nvfp4 mt1",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 1>"},
    {format_id::nvfp4, dtype::e2m1, 2, "nvfp4 mt2",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 2>"},
    {format_id::nvfp4, dtype::e2m1, 4, "nvfp4 mt4",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 4>"},
    {format_id::nvfp4, dtype::e2m1, 8, "nvfp4 mt8",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 8>"},
    {format_id::nvfp4, dtype::e2m1, 12, "nvfp4 mt12",
     "gemm_kernel<weight_operand<nvfp4, (dtype)0>, 12>"},
    {format_id::fp8, dtype::e4m3, 1, "fp8 mt1", "gemm_kernel<weight_operand<fp8, (dtype)1>, 1>"},
    {format_id::fp8, dtype::e4m3, 2, "fp8 mt2", "gemm_kernel<weight_operand<fp8, (dtype)1>, 2>"},
    {format_id::fp8, dtype::e4m3, 4, "fp8 mt4", "gemm_kernel<weight_operand<fp8, (dtype)1>, 4>"},
    {format_id::fp8, dtype::e4m3, 8, "fp8 mt8", "gemm_kernel<weight_operand<fp8, (dtype)1>, 8>"},
    {format_id::fp8, dtype::e4m3, 12, "fp8 mt12", "gemm_kernel<weight_operand<fp8, (dtype)1>, 12>"},
    {format_id::dense16, dtype::f16, 1, "f16 mt1",
     "gemm_kernel<weight_operand<dense16, (dtype)3>, 1>"},
    {format_id::dense16, dtype::f16, 2, "f16 mt2",
     "gemm_kernel<weight_operand<dense16, (dtype)3>, 2>"},
    {format_id::dense16, dtype::f16, 4, "f16 mt4",
     "gemm_kernel<weight_operand<dense16, (dtype)3>, 4>"},
    {format_id::dense16, dtype::bf16, 1, "bf16 mt1",
     "gemm_kernel<weight_operand<dense16, (dtype)4>, 1>"},
    {format_id::dense16, dtype::bf16, 2, "bf16 mt2",
     "gemm_kernel<weight_operand<dense16, (dtype)4>, 2>"},
    {format_id::dense16, dtype::bf16, 4, "bf16 mt4",
     "gemm_kernel<weight_operand<dense16, (dtype)4>, 4>"},
};

work_split split_of(packed_layout const& layout) {
  switch (layout.format) {
    case format_id::nvfp4: return detail::split_of<nvfp4>(layout);
    case format_id::fp8: return detail::split_of<fp8>(layout);
    case format_id::dense16: break;
  }
  return detail::split_of<dense16>(layout);
}

int row_tiles_of(packed_layout const& layout, std::int64_t m) {
  switch (layout.format) {
    case format_id::nvfp4: return detail::cut_rows<nvfp4>(layout, m).row_tiles;
    case format_id::fp8: return detail::cut_rows<fp8>(layout, m).row_tiles;
    case format_id::dense16: break;
  }
  return detail::cut_rows<dense16>(layout, m).row_tiles;
}

void expect_equal(own_kernel const& kernel, char const* what, double in_sass, double in_program) {
  if (in_sass == in_program) return;
  throw std::runtime_error("v100 model: the main loop of " + std::string(kernel.name) + " has " +
                           std::to_string(in_sass) + " " + what + " in the SASS table, " +
                           std::to_string(in_program) + " in the program");
}

/// Turns that one pass of the loop in the machine code makes.
double turns_of_loop(own_kernel const& kernel, sass_kernel const& sass, loop_record const& loop) {
  double const turns = sass["tensor"] / (4 * loop.products);
  expect_equal(kernel, "HMMA", sass["tensor"],
               4 * loop.products * std::max(1.0, std::round(turns)));
  return turns;
}

loop_turn turn_of(own_kernel const& kernel, sass_kernel const& sass, shape_record const& shape,
                  loop_record const& loop, int row_blocks, bool l1_serves) {
  double const turns = turns_of_loop(kernel, sass, loop);
  expect_equal(kernel, "LDG", sass["ldg"], turns * (loop.weight_loads + loop.activation_loads));
  expect_equal(kernel, "LDS", sass["lds"], turns * loop.shared_loads);
  expect_equal(kernel, "STS", sass["sts"], turns * loop.shared_stores);
  loop_turn turn;
  turn.weight_bytes = loop.weight_bytes / shape.row_groups;
  turn.dram_bytes = turn.weight_bytes / row_blocks;
  turn.l2_bytes = (l1_serves ? turn.weight_bytes : loop.weight_bytes) + loop.activation_bytes;
  turn.instructions = sass["instructions"] / turns;
  turn.alu = sass["alu"] / turns;
  turn.fma = sass["fma"] / turns;
  turn.fp16 = sass["fp16"] / turns;
  turn.xu = sass["xu"] / turns;
  turn.hmma = sass["tensor"] / turns;
  turn.wavefronts = loop.wavefronts;
  turn.stall_cycles = sass["stall_cycles"] / turns;
  turn.unhidden = 0.5;
  turn.turns_ahead = shape.steps_ahead;
  return turn;
}

/// The sums of a round's warps through shared memory, some row tiles at a time; before, where warps
/// have all shares of a part, those of the shares in registers.
double add_warps_cycles(own_kernel const& kernel, sass_kernel const& sass,
                        shape_record const& shape, reduction_record const& record, int residents) {
  int const passes = kernel.row_tiles / shape.sum_tiles;
  double const wavefronts =
      shape.teams * shape.warps * (record.store_wavefronts + record.load_wavefronts) / passes;
  double const shares = shape.cuts_rows ? shares_per_part * sass["sums"] : 0;
  return passes * shared_sum_cycles(2, wavefronts, residents) +
         shares * shape.teams * shape.warps / schedulers.value;
}

/// Stores and their fence, the ticket and its two barriers.
double leave_plane_cycles() {
  return 3 * l2_latency.value + 2 * barrier_cycles.value + shared_latency.value;
}

/// The planes of all CTAs, some at a time. Scales have come with the ticket; nothing waits for the
/// stores.
double add_planes_cycles(std::int32_t parties, int at_once) {
  std::int32_t const steps = (parties - 1) / at_once + 1;
  return steps * l2_latency.value;
}

/// Scales from L2, then the stores, for which nothing waits.
double finish_whole_cycles() {
  return l2_latency.value;
}

/// The parts of the CTA whose first team has run c of the split: the run, cut where a tile group
/// ends, and cut into the rounds of a team. A second team does the same at the same time, half of
/// all tile groups further on.
std::vector<launch_part> parts_of(work_split const& split, shape_record const& shape,
                                  double add_warps, std::int64_t c) {
  std::vector<launch_part> parts;
  for (std::int64_t unit = split.first_unit(c); unit < split.last_unit(c);) {
    std::int64_t const group = unit / split.steps;
    std::int64_t const end = std::min((group + 1) * split.steps, split.last_unit(c));
    std::int64_t const count = end - unit;
    for (int round = 0; round < shape.rounds; ++round) {
      launch_part part;
      for (int warp = 0; warp < shape.warps; ++warp) {
        int const share = round * shape.warps + warp;
        std::int64_t const first = count * share / shares_per_part;
        std::int64_t const last = count * (share + 1) / shares_per_part;
        part.turns.insert(part.turns.end(), static_cast<std::size_t>(shape.teams),
                          static_cast<double>(shape.cuts_rows ? count : last - first));
      }
      part.reduce_cycles = add_warps;
      parts.push_back(part);
    }
    launch_part& last = parts.back();
    if (count == split.steps) {
      last.reduce_cycles += finish_whole_cycles();
    } else {
      last.reduce_cycles += leave_plane_cycles();
      last.group = group;
      last.last_cycles = add_planes_cycles(split.cta_count(group), shape.planes_at_once);
    }
    unit = end;
  }
  return parts;
}

/// As many CTAs and warps as one row tile has, each with an equal part of its turns, which only
/// load.
launch read_of(work_split const& split, loop_record const& loop) {
  launch read;
  read.turn.dram_bytes = loop.weight_bytes;
  read.turn.weight_bytes = loop.weight_bytes;
  read.turn.l2_bytes = loop.weight_bytes;
  read.turn.instructions = loop.weight_loads;
  read.turn.wavefronts = loop.weight_wavefronts;
  read.turn.stall_cycles = read.turn.instructions;
  read.turn.unhidden = 0.5;
  read.ctas_per_sm = detail::ctas_per_sm;
  read.start_cycles = prologue_cycles.value;
  auto const ctas = static_cast<std::size_t>(split.ctas);
  launch_part part;
  part.turns.assign(shares_per_part, static_cast<double>(split.units()) /
                                         static_cast<double>(ctas * shares_per_part));
  read.ctas.assign(ctas, {part});
  return read;
}

}  // namespace

std::span<own_kernel const> own_kernels() {
  return kernels;
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

own_kernel const& kernel_for(packed_layout const& layout, std::int64_t m) {
  int const row_tiles = m >= 1 && m <= gemm_max_m ? row_tiles_of(layout, m) : 0;
  for (own_kernel const& kernel : kernels) {
    if (kernel.format == layout.format && kernel.code_type == layout.code_type &&
        kernel.row_tiles == row_tiles) {
      return kernel;
    }
  }
  throw std::invalid_argument("v100 model: no kernel takes " + std::to_string(m) + " rows of " +
                              to_string(layout.format));
}

own_launch make_own_launch(sass_table const& table, own_kernel const& kernel, std::int64_t n,
                           std::int64_t k, int m, bool l1_serves) {
  own_launch made;
  made.kernel = &kernel;
  made.sass = &table.kernel(kernel.symbol);
  int const block_m = detail::sm70::tile_m * kernel.row_tiles;
  int const row_blocks = (m - 1) / block_m + 1;
  made.shape = record_shape(kernel.format, kernel.code_type, kernel.row_tiles);
  made.loop =
      record_loop(kernel.format, kernel.code_type, kernel.row_tiles, k, std::min(m, block_m));
  made.reduction = record_reduction(kernel.format, kernel.code_type, kernel.row_tiles);
  made.layout = v100_layout(kernel.format, kernel.code_type, n, k);
  work_split const split = split_of(made.layout);

  made.work.turn = turn_of(kernel, *made.sass, made.shape, made.loop, row_blocks, l1_serves);
  made.work.ctas_per_sm = made.shape.resident_ctas;
  made.work.start_cycles = prologue_cycles.value;
  std::int64_t const ctas = split.ctas / made.shape.teams;
  double const add_warps = add_warps_cycles(
      kernel, *made.sass, made.shape, made.reduction,
      resident_ctas(made.work.ctas_per_sm, static_cast<std::size_t>(ctas * row_blocks)));
  for (std::int64_t c = 0; c < ctas; ++c) {
    for (int block = 0; block < row_blocks; ++block) {
      made.work.ctas.push_back(parts_of(split, made.shape, add_warps, c));
      for (launch_part& part : made.work.ctas.back()) {  // row blocks share no planes
        if (part.group >= 0) part.group = part.group * row_blocks + block;
      }
    }
  }
  made.read = read_of(split, made.loop);
  return made;
}

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#include "predecessor.hpp"

#include <algorithm>

#include "access_pattern.hpp"
#include "qpn/detail/quadpair_map.hpp"

namespace qpn::bench::v100 {

namespace {

using shapes = std::vector<predecessor_shape>;
using enum predecessor_kernel;

constexpr int group_k = 16;  ///< of one step of a warp
constexpr int row_tile = 8;
constexpr double codes_of_lane_nvfp4 = 8;
constexpr double codes_of_lane_fp8 = 16;
constexpr int registers_of_sm = 65536;
constexpr int warps_of_sm = 64;
constexpr int ctas_of_sm = 32;

/// A fragment of x, 8 rows of 16 bytes, straight from row-major global memory.
warp_access load_of_x(std::int64_t k, int row_tile_index, int m) {
  warp_access access;
  access.bytes = 16;
  for (int lane = 0; lane < detail::warp_lanes; ++lane) {
    int const row = row_tile_index * row_tile + detail::position_of_lane(lane);
    if (row >= m) continue;
    access.address[static_cast<std::size_t>(lane)] = static_cast<std::uint64_t>(row * k * 2);
  }
  return access;
}

/// Decode, loads, addresses and m8n8k4 of 16 k: instructions by pipe.
loop_turn turn_of(predecessor_kernel kernel, std::int64_t k, int m) {
  bool const nvfp4 = is_nvfp4(kernel);
  int const row_tiles = m > row_tile ? 2 : 1;
  loop_turn turn;
  turn.dram_bytes = detail::warp_lanes * (nvfp4 ? codes_of_lane_nvfp4 + 1 : codes_of_lane_fp8);
  turn.weight_bytes = turn.dram_bytes;
  turn.l2_bytes = turn.dram_bytes;
  turn.wavefronts = nvfp4 ? 3 : 4;
  for (int tile = 0; tile < row_tiles; ++tile) {
    access_cost const x = global_cost(load_of_x(k, tile, m));
    turn.wavefronts += 2 * x.wavefronts;  // two loads of 8 k, which share their sectors
    turn.l2_bytes += 32.0 * x.sectors;
  }
  constexpr double address_steps = 2;
  constexpr double loop_end = 1;
  turn.fp16 = nvfp4 ? 8 : 0;
  double const integer = (nvfp4 ? decode_nvfp4 : decode_fp8).value - turn.fp16;
  turn.fma = fma_share.value * integer;
  turn.alu = integer - turn.fma + address_steps;
  turn.hmma = 16.0 * row_tiles;
  double const loads = (nvfp4 ? 2 : 1) + 2 * row_tiles;
  turn.instructions = turn.alu + turn.fma + turn.fp16 + turn.hmma + loads + loop_end;
  turn.stall_cycles = stall_ratio.value * turn.instructions;
  turn.unhidden = 1;
  return turn;
}

int room_for_ctas(predecessor_shape const& shape, int row_tiles) {
  int const threads = 32 * shape.warps;
  auto const registers = static_cast<int>((row_tiles > 1 ? registers_mt2 : registers_mt1).value);
  int const by_registers = registers_of_sm / (threads * registers);
  return std::max(1, std::min({by_registers, warps_of_sm / shape.warps, ctas_of_sm}));
}

double us_at(predecessor_kernel kernel, shapes const& all, double gb_s) {
  double bytes = 0;
  for (predecessor_shape const& shape : all) bytes += predecessor_bytes(kernel, shape);
  return bytes / gb_s * 1e-3;
}

std::vector<published_timing> make_timings() {
  shapes const trunk = {{5120, 1536, 16}, {5120, 4352, 16}, {8704, 5120, 8},
                        {4096, 5120, 16}, {2048, 5120, 32}, {3584, 5120, 16}};
  shapes const trunk1 = {{5120, 1536, 4}, {5120, 4352, 4}, {8704, 5120, 4},
                         {4096, 5120, 4}, {2048, 5120, 4}, {3584, 5120, 4}};
  shapes const head = {{62080, 5120, 8}};
  shapes const head1 = {{62080, 5120, 4}};
  shapes const fp8 = {{4096, 5120, 16}, {5120, 1536, 8}, {3584, 5120, 16}};
  shapes const fp8_mt2 = {{4096, 5120, 16}, {5120, 1536, 16}, {3584, 5120, 16}};

  std::vector<published_timing> timings;
  auto const rate = [&](char const* what, predecessor_kernel kernel, shapes const& all, int m,
                        double gb_s, bool in_fit) {
    timings.push_back({what, kernel, all, m, us_at(kernel, all, gb_s), in_fit});
  };
  auto const time = [&](char const* what, predecessor_kernel kernel, predecessor_shape const& one,
                        int m, double us, bool in_fit) {
    timings.push_back({what, kernel, {one}, m, us, in_fit});
  };
  rate("QPN2, six shapes", qpn2, trunk, 1, 679.5, true);
  rate("QPN2, six shapes", qpn2, trunk, 8, 619.8, true);
  rate("QPN8, three shapes", qpn8, fp8, 1, 718.6, true);
  rate("QPN8, three shapes", qpn8, fp8, 8, 712.4, true);
  time("QPN8, 4096 x 5120", qpn8, fp8[0], 8, 28.2, true);
  time("QPN8, 3584 x 5120", qpn8, fp8[2], 8, 25.45, true);

  rate("QPN2, six shapes", qpn2, trunk, 2, 679.7, false);
  rate("QPN2, six shapes", qpn2, trunk, 4, 676.6, false);
  rate("QPN8, three shapes", qpn8, fp8, 2, 718.7, false);
  rate("QPN8, three shapes", qpn8, fp8, 4, 720.5, false);
  rate("QPN2, lm_head", qpn2, head, 1, 842.9, false);
  rate("QPN2, lm_head", qpn2, head, 8, 777.8, false);
  time("QPN8, 5120 x 1536", qpn8, fp8[1], 8, 12.3, false);
  rate("QPN8-MT2, three shapes", qpn8_mt2, fp8_mt2, 16, 558.5, false);
  time("QPN8-MT2, 4096 x 5120", qpn8_mt2, fp8_mt2[0], 16, 34.6, false);
  time("QPN8-MT2, 5120 x 1536", qpn8_mt2, fp8_mt2[1], 16, 14.5, false);
  time("QPN8-MT2, 3584 x 5120", qpn8_mt2, fp8_mt2[2], 16, 34.1, false);
  rate("QPN gen 1, six shapes", qpn1, trunk1, 16, 301.9, false);
  rate("QPN gen 1, lm_head", qpn1, head1, 16, 457.8, false);
  return timings;
}

}  // namespace

double predecessor_bytes(predecessor_kernel kernel, predecessor_shape const& shape) {
  return static_cast<double>(shape.n * shape.k) * (is_nvfp4(kernel) ? 0.5625 : 1);
}

launch make_predecessor_launch(predecessor_kernel kernel, predecessor_shape const& shape, int m) {
  int const row_tiles = m > row_tile ? 2 : 1;
  launch work;
  work.turn = turn_of(kernel, shape.k, m);
  work.ctas_per_sm = room_for_ctas(shape, row_tiles);
  work.start_cycles = prologue_cycles.value;

  // Each warp writes its 8 x 32 sums, one wavefront a register; after a barrier threads add them.
  launch_part part;
  part.turns.assign(static_cast<std::size_t>(shape.warps),
                    static_cast<double>(shape.k) / group_k / shape.warps);
  work.ctas.assign(static_cast<std::size_t>(shape.n / detail::warp_lanes), {part});
  double const wavefronts = 2.0 * row_tile * row_tiles * shape.warps;
  double const cycles =
      shared_sum_cycles(1, wavefronts, resident_ctas(work.ctas_per_sm, work.ctas.size()));
  for (auto& cta : work.ctas) cta.front().reduce_cycles = cycles;
  return work;
}

std::span<published_timing const> published_timings() {
  static std::vector<published_timing> const timings = make_timings();
  return timings;
}

}  // namespace qpn::bench::v100

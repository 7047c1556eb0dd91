// SPDX-License-Identifier: Apache-2.0
#include "loop_record.hpp"

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "access_pattern.hpp"
#include "qpn/arch/sm70/gemm_program.hpp"
#include "recording_lane.hpp"

namespace qpn::bench::v100 {

namespace {

using namespace detail::sm70;

/// Calls visit(operand, row tiles as a type) for the kernel of this format.
template <class Visit>
auto visit_kernel(format_id format, dtype code_type, int row_tiles, Visit visit) {
  auto const with_tiles = [&](auto operand) {
    if (row_tiles == 1) return visit(operand, std::integral_constant<int, 1>{});
    if (row_tiles == 2) return visit(operand, std::integral_constant<int, 2>{});
    if (row_tiles == 4) return visit(operand, std::integral_constant<int, 4>{});
    if (row_tiles == 8) return visit(operand, std::integral_constant<int, 8>{});
    if (row_tiles == 12) return visit(operand, std::integral_constant<int, 12>{});
    throw std::invalid_argument("v100 model: no kernel has " + std::to_string(row_tiles) +
                                " row tiles, expected 1, 2, 4, 8 or 12");
  };
  if (format == format_id::nvfp4) return with_tiles(weight_operand<nvfp4, dtype::e2m1>{});
  if (format == format_id::fp8) return with_tiles(weight_operand<fp8, dtype::e4m3>{});
  if (code_type == dtype::f16) return with_tiles(weight_operand<dense16, dtype::f16>{});
  return with_tiles(weight_operand<dense16, dtype::bf16>{});
}

/// The accesses of a warp's lanes as instructions. Lane 0 makes all of them; a lane whose next
/// access is of another kind is switched off in this one.
std::vector<warp_access> in_step(std::vector<recording_lane> const& lanes) {
  std::vector<warp_access> warp(lanes[0].accesses().size());
  for (std::size_t id = 0; id < lanes.size(); ++id) {
    std::vector<recording_lane::access> const& mine = lanes[id].accesses();
    std::size_t next = 0;
    for (std::size_t i = 0; i < warp.size(); ++i) {
      recording_lane::access const& first = lanes[0].accesses()[i];
      warp[i].what = first.what;
      warp[i].bytes = first.bytes;
      if (next == mine.size() || mine[next].what != first.what) continue;
      warp[i].address[id] = mine[next++].address;
    }
    if (next != mine.size()) {
      throw std::logic_error("v100 model: the lanes of a warp do not go in step");
    }
  }
  return warp;
}

constexpr double loop_record::*loop_fields[] = {
    &loop_record::weight_bytes,     &loop_record::activation_bytes,  &loop_record::weight_loads,
    &loop_record::activation_loads, &loop_record::shared_loads,      &loop_record::shared_stores,
    &loop_record::products,         &loop_record::weight_wavefronts, &loop_record::wavefronts,
    &loop_record::conflicts};

void add_access(warp_access const& access, loop_record& sum) {
  using kind = warp_access::kind;
  switch (access.what) {
    case kind::stream_load: {
      access_cost const cost = global_cost(access);
      sum.weight_loads += 1;
      sum.weight_bytes += 32.0 * cost.sectors;
      sum.weight_wavefronts += cost.wavefronts;
      sum.wavefronts += cost.wavefronts;
      break;
    }
    case kind::load: {
      access_cost const cost = global_cost(access);
      sum.activation_loads += 1;
      sum.activation_bytes += 32.0 * cost.sectors;
      sum.wavefronts += cost.wavefronts;
      break;
    }
    case kind::shared_load:
    case kind::shared_store: {
      access_cost const cost = shared_cost(access);
      (access.what == kind::shared_load ? sum.shared_loads : sum.shared_stores) += 1;
      sum.wavefronts += cost.wavefronts;
      sum.conflicts += cost.conflicts;
      break;
    }
  }
}

/// Sums over `turns` turns of the loop.
template <class Operand, int RowTiles>
loop_record record_turns(int turns, std::int64_t k, int m) {
  constexpr std::int64_t line_elements = 64;
  std::int64_t ldx =
      k;  // the rows' places in their lines, which is what counts, in rows long enough
  while (ldx < turns * Operand::record_k) ldx += line_elements;
  std::vector<std::uint16_t> x_words(
      static_cast<std::size_t>(RowTiles * tile_m * ldx + line_elements));
  auto const at = reinterpret_cast<std::uintptr_t>(x_words.data());
  std::uint16_t const* const x = x_words.data() + (128 - at % 128) % 128 / 2;
  std::vector<std::byte> records(
      static_cast<std::size_t>(turns * tiles_per_group * Operand::record_bytes) + 128);
  auto const first = reinterpret_cast<std::uintptr_t>(records.data());

  gemm_params p;
  p.records = records.data() + (128 - first % 128) % 128;
  p.split = {1, turns, 1};
  p.x = x;
  p.ldx = ldx;
  p.k = ldx;
  p.m = m;
  p.word_steps = static_cast<int>(turns);

  constexpr int warps = cta_shape<Operand, RowTiles>::stage_lanes / detail::warp_lanes;
  loop_record sum;
  for (int warp = 0; warp < warps; ++warp) {
    std::vector<recording_lane> lanes;
    for (int id = 0; id < detail::warp_lanes; ++id) {
      lanes.emplace_back(warp * detail::warp_lanes + id);
      warp_sums<Operand, RowTiles> acc = {};
      multiply_steps<true, Operand, RowTiles>(lanes.back(), p, 0, 0, turns, acc);
    }
    sum.products += lanes[0].products();
    for (warp_access const& access : in_step(lanes)) add_access(access, sum);
  }
  for (double loop_record::*field : loop_fields) sum.*field /= warps;
  return sum;
}

}  // namespace

loop_record record_loop(format_id format, dtype code_type, int row_tiles, std::int64_t k, int m) {
  return visit_kernel(format, code_type, row_tiles, [&](auto operand, auto tiles) {
    // The first turns fill the pipeline; what two more add is two turns of the steady state.
    constexpr int begin = 4;
    using operand_type = decltype(operand);
    auto const less = record_turns<operand_type, decltype(tiles)::value>(begin, k, m);
    auto const more = record_turns<operand_type, decltype(tiles)::value>(begin + 2, k, m);
    loop_record turn;
    for (double loop_record::*field : loop_fields) {
      turn.*field = (more.*field - less.*field) / 2;
    }
    // A warp whose lanes are all switched off issues the instruction, too.
    for (double loop_record::*field :
         {&loop_record::activation_loads, &loop_record::shared_stores}) {
      turn.*field = std::ceil(turn.*field);
    }
    return turn;
  });
}

reduction_record record_reduction(format_id format, dtype code_type, int row_tiles) {
  return visit_kernel(format, code_type, row_tiles, [](auto operand, auto tiles) {
    using operand_type = decltype(operand);
    constexpr int row_tiles_of_kernel = decltype(tiles)::value;
    std::vector<recording_lane> lanes;
    for (int id = 0; id < detail::warp_lanes; ++id) {
      lanes.emplace_back(id);
      using shape = cta_shape<operand_type, row_tiles_of_kernel>;
      warp_sums<operand_type, row_tiles_of_kernel> const acc = {};
      float sum[shape::rows_per_warp][tiles_per_group];
      if constexpr (shape::cuts_rows) {
        spread_rows<operand_type, row_tiles_of_kernel>(lanes.back(), acc, sum);
      } else {
        add_warps<operand_type, row_tiles_of_kernel>(lanes.back(), acc, 0, sum);
      }
    }
    reduction_record record;
    for (warp_access const& access : in_step(lanes)) {
      access_cost const cost = shared_cost(access);
      bool const is_load = access.what == warp_access::kind::shared_load;
      (is_load ? record.load_wavefronts : record.store_wavefronts) += cost.wavefronts;
      record.loads += is_load ? 1 : 0;
      record.conflicts += cost.conflicts;
    }
    return record;
  });
}

shape_record record_shape(format_id format, dtype code_type, int row_tiles) {
  return visit_kernel(format, code_type, row_tiles, [](auto operand, auto tiles) {
    using operand_type = decltype(operand);
    constexpr int row_tiles_of_kernel = decltype(tiles)::value;
    using shared = shared_layout<operand_type, row_tiles_of_kernel>;
    using shape = typename shared::shape;
    return shape_record{shape::teams,
                        shape::warps,
                        shape::rounds,
                        shape::steps_ahead,
                        shape::resident_ctas,
                        shared::sum_tiles,
                        shape::cuts_rows,
                        shape::row_groups,
                        planes_at_once<operand_type, row_tiles_of_kernel>};
  });
}

}  // namespace qpn::bench::v100

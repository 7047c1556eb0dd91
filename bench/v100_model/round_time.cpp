// SPDX-License-Identifier: Apache-2.0
#include "round_time.hpp"

#include <algorithm>
#include <numeric>

#include "round_constants.hpp"
#include "support/text.hpp"

namespace qpn::bench::v100 {

double round_time::ms() const {
  return 1e-3 * std::accumulate(part_us.begin(), part_us.end(), gaps_us + host_us);
}

double kernel_us(kernel_work const& work) {
  double const cycles = work.dram_trips * load_latency.value + work.l2_trips * l2_latency.value +
                        work.shared_trips * shared_latency.value +
                        work.barriers * barrier_cycles.value + work.alone_cycles;
  double const moved =
      std::max({work.dram_bytes / read_gb_s.value * 1e-3, work.l2_bytes / l2_gb_s.value * 1e-3,
                work.peer_bytes / peer_gb_s.value * 1e-3, microseconds(work.busy_cycles)});
  return boundary_us.value + microseconds(cycles) + work.hops * hop_us() + moved;
}

double round_timer::launch_us(round_launch const& launch) {
  if (!launch.is_product()) return kernel_us(launch.work);
  model_shape const& weight = launch.weight;
  auto const [at, is_new] = products_.try_emplace({weight.format, weight.n, weight.k, launch.m}, 0);
  if (is_new) at->second = make_row(table_, weight, static_cast<int>(launch.m), constants_).us;
  return at->second;
}

round_time round_timer::time(rank_model const& model, round_shape const& shape) {
  round_time sum;
  sum.shape = shape;
  for (round_launch const& one : round_launches(model, shape)) {
    auto const count = static_cast<double>(one.count);
    double const us = launch_us(one);
    sum.part_us[static_cast<std::size_t>(one.part)] += count * (us - graph_gap_us.value);
    sum.phase_us[static_cast<std::size_t>(one.phase)] += count * us;
    sum.gaps_us += count * graph_gap_us.value;
    sum.launches += one.count;
    if (one.is_product()) sum.products += one.count;
    sum.hops += one.count * static_cast<std::int64_t>(one.work.hops);
  }
  sum.host_us = turn_us.value;
  return sum;
}

std::optional<double> predecessor_round_ms(int drafts) noexcept {
  switch (drafts) {
    case 0: return 1000 / 86.3;  // published as tokens a second, at a live context of 0.5k
    case 3: return 20.4;
    case 7: return 24.9;
    case 15: return 37;
    default: return std::nullopt;
  }
}

std::span<predecessor_part const> predecessor_parts() {
  static constexpr predecessor_part parts[] = {
      {"verify: FP8 products", 3.0},
      {"verify: NVFP4 products and head", 4.8},
      {"verify: attention", 2.35},
      {"verify: GDN", 1.46},
      {"verify: collectives", 2.4},
      {"verify: norms and elementwise", 2.07},
      {"verify: copies", 2.2},
      {"drafts: head", 1.54},
      {"drafts: other products", 2.28},
      {"drafts: attention", 0.42},
      {"drafts: collectives", 0.73},
      {"drafts: norms, copies, sampling", 0.87},
      {"rejection, and the host between rounds", 1.6},
  };
  return parts;
}

std::vector<std::string> missed_round_limits(std::span<round_time const> rounds) {
  std::vector<std::string> misses;
  for (round_time const& one : rounds) {
    bool const is_limited =
        one.shape.drafts == round_limit_drafts && one.shape.context == round_context;
    if (!is_limited || one.ms() <= round_limit_ms) continue;
    misses.push_back("a round with " + std::to_string(one.shape.drafts) +
                     " drafts at a context of " + std::to_string(one.shape.context) + " takes " +
                     fixed(one.ms(), 2) + " ms, " + fixed(round_limit_ms, 0) + " are allowed.");
  }
  return misses;
}

}  // namespace qpn::bench::v100

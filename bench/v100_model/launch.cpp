// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

#include <algorithm>
#include <numeric>

#include "constants.hpp"

namespace qpn::bench::v100 {

namespace {

double turns_of(std::vector<launch_part> const& cta) {
  double turns = 0;
  for (launch_part const& part : cta) {
    turns = std::accumulate(part.turns.begin(), part.turns.end(), turns);
  }
  return turns;
}

}  // namespace

double launch::dram_bytes() const noexcept {
  double turns = 0;
  for (auto const& cta : ctas) turns += turns_of(cta);
  return turns * turn.dram_bytes;
}

double launch::balance() const {
  std::vector<double> of_sm(static_cast<std::size_t>(sm_count.value));
  for (std::size_t c = 0; c < ctas.size(); ++c) of_sm[c % of_sm.size()] += turns_of(ctas[c]);
  double const mean =
      std::accumulate(of_sm.begin(), of_sm.end(), 0.0) / static_cast<double>(of_sm.size());
  return mean / *std::max_element(of_sm.begin(), of_sm.end());
}

double launch::bytes_in_flight() const noexcept {
  auto const warps = static_cast<double>(ctas.front().front().turns.size()) *
                     resident_ctas(ctas_per_sm, ctas.size());
  return warps * turn.weight_bytes * (turn.turns_ahead - turn.unhidden);
}

double launch::tail_us() const noexcept {
  double cycles = 0;
  for (auto const& cta : ctas) {
    cycles = std::max(cycles, cta.back().reduce_cycles + cta.back().last_cycles);
  }
  return microseconds(cycles);
}

int resident_ctas(int ctas_per_sm, std::size_t ctas) noexcept {
  auto const sms = static_cast<std::size_t>(sm_count.value);
  return std::min(ctas_per_sm, static_cast<int>((ctas + sms - 1) / sms));
}

double shared_sum_cycles(int barriers, double wavefronts, int residents) noexcept {
  return barriers * barrier_cycles.value + wavefronts * wavefront_cycles.value * residents +
         shared_latency.value + add_latency.value;
}

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/emulator.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/emulator/cta.hpp"

namespace qpn::test {
namespace {

void check(emulation_options const& options) {
  auto const demand = [](bool met, char const* what) {
    if (!met) throw std::invalid_argument(sentence("emulate: ", what));
  };
  demand(options.blocks >= 1, "blocks is at least 1");
  demand(options.row_blocks >= 1, "row_blocks is at least 1");
  demand(
      options.threads >= warp_lanes && options.threads <= 1024 && options.threads % warp_lanes == 0,
      "threads is a multiple of 32 in 32..1024");
  demand(options.shared_bytes >= 0, "shared_bytes is not negative");
  demand(options.resident >= 1, "resident is at least 1");
  demand(options.cluster >= 1 && options.blocks % options.cluster == 0,
         "blocks is a multiple of cluster");
  demand(options.cluster == 1 || options.row_blocks == 1, "clusters have one row block");
  demand(options.resident >= options.cluster, "a cluster is resident as a whole");
  demand(options.max_operations >= 1, "max_operations is at least 1");
}

/// The first blocks of the clusters, in the reverse of the order in which these become resident.
std::vector<int> clusters_from_last(emulation_options const& options, schedule_random& random) {
  std::vector<int> blocks(
      static_cast<std::size_t>(options.blocks * options.row_blocks / options.cluster));
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  if (options.order == cta_order::descending) std::reverse(blocks.begin(), blocks.end());
  if (options.order == cta_order::shuffled) {
    for (std::size_t i = blocks.size(); i > 1; --i)
      std::swap(blocks[i - 1], blocks[random.below(i)]);
  }
  for (int& block : blocks) block *= options.cluster;
  return blocks;
}

}  // namespace

emulation_report emulate(emulation_options const& options,
                         std::function<void(emulated_lane&)> const& program) {
  check(options);
  emulation_report report;
  emulator_memory none;
  global_memory memory(options.memory != nullptr ? *options.memory : none,
                       options.blocks * options.row_blocks, options.threads, report);
  launch_state launch{options.row_blocks,
                      options.threads,
                      options.shared_bytes,
                      options.max_operations,
                      program,
                      report,
                      memory,
                      schedule_random(options.seed)};
  std::vector<int> waiting = clusters_from_last(options, launch.random);
  std::vector<std::unique_ptr<cta>> resident;
  auto const cluster_size = static_cast<std::size_t>(options.cluster);
  std::size_t turn = 0;
  for (;;) {
    while (!waiting.empty() &&
           resident.size() + cluster_size <= static_cast<std::size_t>(options.resident)) {
      auto const cluster = std::make_shared<cta_cluster>(options.cluster, options.threads);
      for (int rank = 0; rank < options.cluster; ++rank) {
        resident.push_back(std::make_unique<cta>(launch, waiting.back() + rank, cluster, rank));
      }
      waiting.pop_back();
    }
    if (resident.empty()) return report;
    // Turns come in bursts, so that now and then a CTA passes many steps of another one.
    if (turn >= resident.size() || launch.random.below(4) == 0) {
      turn = launch.random.below(resident.size());
    }
    if (!resident[turn]->advance()) {
      resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(turn));
    }
  }
}

}  // namespace qpn::test

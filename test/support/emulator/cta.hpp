// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "support/emulator/cluster.hpp"
#include "support/emulator/global_memory.hpp"
#include "support/emulator/lane.hpp"
#include "support/emulator/moment.hpp"
#include "support/emulator/report.hpp"
#include "support/emulator/shared_memory.hpp"

namespace qpn::test {

/// The scheduler's dice (splitmix64), the same for a seed on every machine.
class schedule_random {
 public:
  explicit schedule_random(std::uint64_t seed) : state_(seed) {}

  /// In 0..count-1.
  [[nodiscard]] std::size_t below(std::size_t count) {
    std::uint64_t bits = state_ += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return static_cast<std::size_t>((bits ^ bits >> 31) % count);
  }

 private:
  std::uint64_t state_;
};

/// What the CTAs of a launch have in common.
struct launch_state {
  int row_blocks;
  int threads;
  int shared_bytes;
  std::int64_t max_operations;
  std::function<void(emulated_lane&)> const& program;
  emulation_report& report;
  global_memory& memory;
  schedule_random random;
};

/// A resident CTA: its lanes, its shared memory and its barriers. A CTA with an error that leaves
/// lanes without a way on (collectives that do not match, an exception, too many operations) is
/// given up as a whole, and its lanes are dropped where they stand.
class cta {
 public:
  /// @param rank  in the cluster
  cta(launch_state& launch, int block, std::shared_ptr<cta_cluster> cluster, int rank);
  ~cta();
  cta(cta const&) = delete;
  cta& operator=(cta const&) = delete;

  /// Runs one warp, picked at random from those that can run, to its next collective; none where
  /// all wait for the cluster. False when the CTA has come to its end.
  [[nodiscard]] bool advance();

  [[nodiscard]] int block() const { return block_; }

 private:
  friend class emulated_lane;

  [[nodiscard]] lane_moment moment(int thread) const {
    return {block_,
            thread,
            now_,
            block_start_,
            pair_start_[static_cast<std::size_t>(thread / warp_lanes / 2)],
            warp_start_[static_cast<std::size_t>(thread / warp_lanes)]};
  }
  [[nodiscard]] std::span<emulated_lane> lanes_of(int warp) {
    return {lanes_.data() + warp * warp_lanes, static_cast<std::size_t>(warp_lanes)};
  }

  /// Of a lane of another CTA of the cluster, which stores here.
  [[nodiscard]] lane_moment moment_of_peer(int thread) const {
    return {block_, first_peer_thread + thread, now_, block_start_, block_start_, block_start_};
  }

  /// What the cluster's barrier puts before the next access of a lane, and who may go on.
  void open_cluster_barrier();
  [[nodiscard]] bool waits_for_cluster() const;

  void run_lane(emulated_lane& lane);
  [[nodiscard]] bool run_warp(int warp);
  [[nodiscard]] bool settle_warp(int warp);
  [[nodiscard]] bool settle_block();
  void settle_pair(int warp);
  void finish_collective(int warp, lane_state collective);

  launch_state& launch_;
  int block_;
  std::shared_ptr<cta_cluster> cluster_;
  int rank_;
  shared_memory shared_;
  std::vector<emulated_lane> lanes_;
  std::vector<int> runnable_warps_;
  std::vector<int> warps_in_sync_block_;
  std::vector<int> warps_in_cluster_;  ///< that wait for the cluster's barrier
  std::uint32_t now_ = 1;
  std::uint32_t block_start_ = 1;
  std::vector<std::uint32_t> pair_start_;
  std::vector<std::uint32_t> warp_start_;
};

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/cta.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

namespace qpn::test {
namespace {

/// "lanes 0-3, 8" for names, "s" where there are several.
std::string numbered(std::string const& name, std::vector<int> const& numbers) {
  std::string text = name + (numbers.size() == 1 ? " " : "s ");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::size_t const first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += sentence(first == 0 ? "" : ", ", numbers[first]);
    if (i != first) text += sentence("-", numbers[i]);
  }
  return text;
}

/// "lanes 0-7 wait at sync_warp, lanes 8-15 at mma_m8n8k4, lanes 16-31 have returned", from where
/// each one waits; nowhere, for one that has returned.
std::string places(std::string const& name, std::vector<std::string> const& place_of) {
  std::vector<std::string> seen;
  std::string text;
  bool one_waits = false;
  for (std::string const& place : place_of) {
    if (std::find(seen.begin(), seen.end(), place) != seen.end()) continue;
    std::vector<int> members;
    for (std::size_t i = 0; i < place_of.size(); ++i) {
      if (place_of[i] == place) members.push_back(static_cast<int>(i));
    }
    bool const one = members.size() == 1;
    text += (seen.empty() ? "" : ", ") + numbered(name, members);
    if (place.empty()) {
      text += one ? " has returned" : " have returned";
    } else {
      if (!one_waits) text += one ? " waits" : " wait";
      text += " at " + place;
      one_waits = true;
    }
    seen.push_back(place);
  }
  return text;
}

}  // namespace

cta::cta(launch_state& launch, int block, std::shared_ptr<cta_cluster> cluster, int rank)
    : launch_(launch),
      block_(block),
      cluster_(std::move(cluster)),
      rank_(rank),
      shared_(launch.shared_bytes, launch.report) {
  cluster_->add(rank, *this);
  int const warps = launch.threads / warp_lanes;
  pair_start_.assign(static_cast<std::size_t>(warps + 1) / 2, 1);
  warp_start_.assign(static_cast<std::size_t>(warps), 1);
  for (int warp = 0; warp < warps; ++warp) runnable_warps_.push_back(warp);
  lanes_.reserve(static_cast<std::size_t>(launch.threads));
  for (int thread = 0; thread < launch.threads; ++thread) {
    lanes_.emplace_back(*this, thread, local_fibers().take());
  }
  for (emulated_lane& lane : lanes_) {
    lane.fiber_->start([this, &lane] { run_lane(lane); });
  }
}

cta::~cta() {
  cluster_->remove(rank_);
  for (emulated_lane& lane : lanes_) local_fibers().give_back(std::move(lane.fiber_));
}

// A lane that is dropped leaks what its frames own, so this one owns nothing.
void cta::run_lane(emulated_lane& lane) {
  auto const report_throw = [&](char const* what) {
    launch_.report.add_error(
        [&] { return sentence("block ", block_, ", thread ", lane.thread_, " threw: ", what); });
    lane.state_ = lane_state::failed;
  };
  try {
    launch_.program(lane);
    lane.state_ = lane_state::returned;
  } catch (std::exception const& thrown) {
    report_throw(thrown.what());
  } catch (...) {
    report_throw("something that is no std::exception");
  }
}

bool cta::advance() {
  if (runnable_warps_.empty()) return waits_for_cluster();
  std::size_t const picked = launch_.random.below(runnable_warps_.size());
  int const warp = runnable_warps_[picked];
  if (!run_warp(warp)) return false;
  std::span<emulated_lane> const lanes = lanes_of(warp);
  bool const runnable = std::any_of(lanes.begin(), lanes.end(), [](emulated_lane const& lane) {
    return lane.state_ == lane_state::ready;
  });
  if (!runnable) runnable_warps_.erase(runnable_warps_.begin() + static_cast<int>(picked));
  return !runnable_warps_.empty() || settle_block();
}

// The functions below return false when the CTA has come to its end.

bool cta::run_warp(int warp) {
  bool yielded = false;
  // Lanes of a warp have no order on the device either.
  std::size_t const order = launch_.random.below(warp_lanes);
  std::span<emulated_lane> const lanes = lanes_of(warp);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    emulated_lane& lane = lanes[i ^ order];
    if (lane.state_ != lane_state::ready) continue;
    lane.fiber_->resume();
    if (lane.state_ == lane_state::failed) return false;
    yielded = yielded || lane.state_ == lane_state::ready;
  }
  return yielded || settle_warp(warp);
}

bool cta::settle_warp(int warp) {
  std::span<emulated_lane> const lanes = lanes_of(warp);
  emulated_lane const& first = lanes[0];
  bool const together = std::all_of(lanes.begin(), lanes.end(), [&](emulated_lane const& lane) {
    return lane.state_ == first.state_ &&
           (lane.state_ != lane_state::in_shuffle || lane.shuffle_mask_ == first.shuffle_mask_);
  });
  if (!together) {
    std::vector<std::string> place_of;
    for (emulated_lane const& lane : lanes) {
      switch (lane.state_) {
        case lane_state::in_sync_warp: place_of.push_back("sync_warp"); break;
        case lane_state::in_sync_pair: place_of.push_back("sync_pair"); break;
        case lane_state::in_sync_block: place_of.push_back("sync_block"); break;
        case lane_state::in_mma: place_of.push_back("mma_m8n8k4"); break;
        case lane_state::in_mma16: place_of.push_back("mma_m16n8k16"); break;
        case lane_state::in_mma16_bf16: place_of.push_back("mma_m16n8k16_bf16"); break;
        case lane_state::in_shuffle:
          place_of.push_back(sentence("shuffle_xor with mask ", lane.shuffle_mask_));
          break;
        case lane_state::in_any: place_of.push_back("any"); break;
        case lane_state::in_cluster: place_of.push_back("wait_cluster"); break;
        default: place_of.push_back(""); break;
      }
    }
    launch_.report.add_error([&] {
      return sentence("block ", block_, ", warp ", warp, ": ", places("lane", place_of));
    });
    return false;
  }
  if (first.state_ == lane_state::in_shuffle &&
      (first.shuffle_mask_ < 0 || first.shuffle_mask_ >= warp_lanes)) {
    launch_.report.add_error([&] {
      return sentence("block ", block_, ", warp ", warp, ": shuffle_xor with mask ",
                      first.shuffle_mask_, ", which is not in 0..31");
    });
    return false;
  }
  if (first.state_ == lane_state::in_sync_block) {
    warps_in_sync_block_.push_back(warp);
  } else if (first.state_ == lane_state::in_sync_pair) {
    settle_pair(warp);
  } else if (first.state_ == lane_state::in_cluster) {
    if (first.arrivals_ > cluster_->openings()) {
      warps_in_cluster_.push_back(warp);
    } else {
      for (emulated_lane& lane : lanes) lane.state_ = lane_state::ready;
    }
  } else if (first.state_ != lane_state::returned) {
    finish_collective(warp, first.state_);
  }
  return true;
}

/// Where the other warp of the pair waits already, both go on.
void cta::settle_pair(int warp) {
  int const other = warp ^ 1;
  if (other >= static_cast<int>(warp_start_.size())) return;
  for (emulated_lane const& lane : lanes_of(other)) {
    if (lane.state_ != lane_state::in_sync_pair) return;
  }
  pair_start_[static_cast<std::size_t>(warp / 2)] = ++now_;
  for (int const one : {warp, other}) {
    for (emulated_lane& lane : lanes_of(one)) lane.state_ = lane_state::ready;
  }
  runnable_warps_.push_back(other);
}

void cta::open_cluster_barrier() {
  block_start_ = ++now_;
  std::fill(pair_start_.begin(), pair_start_.end(), block_start_);
  for (int const warp : std::exchange(warps_in_cluster_, {})) {
    for (emulated_lane& lane : lanes_of(warp)) lane.state_ = lane_state::ready;
    runnable_warps_.push_back(warp);
  }
}

/// For a CTA none of whose warps can run.
bool cta::waits_for_cluster() const {
  bool one_runs = false;
  cluster_->for_each(
      [&](cta const& member) { one_runs = one_runs || !member.runnable_warps_.empty(); });
  if (one_runs) return true;
  launch_.report.add_error([&] {
    return sentence("block ", block_, ": its threads wait for the cluster, of which nobody runs");
  });
  return false;
}

bool cta::settle_block() {
  if (!warps_in_cluster_.empty()) return true;
  std::size_t const warps = warp_start_.size();
  if (warps_in_sync_block_.size() != warps) {
    std::vector<std::string> place_of(warps);
    bool one_waits = false;
    for (std::size_t warp = 0; warp < warps; ++warp) {
      lane_state const state = lanes_of(static_cast<int>(warp))[0].state_;
      if (state == lane_state::in_sync_block) place_of[warp] = "sync_block";
      if (state == lane_state::in_sync_pair) place_of[warp] = "sync_pair";
      one_waits = one_waits || !place_of[warp].empty();
    }
    if (!one_waits) return false;  // all have returned
    launch_.report.add_error(
        [&] { return sentence("block ", block_, ": ", places("warp", place_of)); });
    return false;
  }
  block_start_ = ++now_;
  std::fill(pair_start_.begin(), pair_start_.end(), block_start_);
  for (emulated_lane& lane : lanes_) lane.state_ = lane_state::ready;
  runnable_warps_ = std::exchange(warps_in_sync_block_, {});
  return true;
}

void cta::finish_collective(int warp, lane_state collective) {
  std::span<emulated_lane> const lanes = lanes_of(warp);
  if (collective == lane_state::in_sync_warp) {
    warp_start_[static_cast<std::size_t>(warp)] = ++now_;
  } else if (collective == lane_state::in_shuffle) {
    std::array<std::uint32_t, warp_lanes> values;
    for (std::size_t i = 0; i < lanes.size(); ++i) values[i] = lanes[i].shuffle_value_;
    auto const mask = static_cast<std::size_t>(lanes[0].shuffle_mask_);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].shuffle_value_ = values[i ^ mask];
  } else if (collective == lane_state::in_mma16 || collective == lane_state::in_mma16_bf16) {
    std::array<mma16_registers, warp_lanes> registers;
    for (std::size_t i = 0; i < lanes.size(); ++i) registers[i] = lanes[i].mma16_;
    multiply_accumulate_m16n8k16(registers,
                                 collective == lane_state::in_mma16 ? dtype::f16 : dtype::bf16);
    ++launch_.report.mma_count;
  } else if (collective == lane_state::in_any) {
    bool const holds = std::any_of(lanes.begin(), lanes.end(),
                                   [](emulated_lane const& lane) { return lane.condition_; });
    for (emulated_lane& lane : lanes) lane.condition_ = holds;
  } else {
    std::array<mma_registers, warp_lanes> registers;
    for (std::size_t i = 0; i < lanes.size(); ++i) registers[i] = lanes[i].mma_;
    multiply_accumulate_m8n8k4(registers);
    ++launch_.report.mma_count;
  }
  for (emulated_lane& lane : lanes) lane.state_ = lane_state::ready;
}

}  // namespace qpn::test

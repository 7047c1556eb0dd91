// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/communicator.hpp"
#include "support/error.hpp"

namespace qwen38::parallel {

/// One thread per rank of a group. Not thread-safe: one caller.
class rank_team {
 public:
  /// `ends`: the group's communicators in rank order.
  explicit rank_team(std::vector<std::shared_ptr<communicator>> ends);
  ~rank_team();
  rank_team(rank_team const&) = delete;
  rank_team& operator=(rank_team const&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ends_.size()); }
  [[nodiscard]] std::shared_ptr<communicator> const& end(int rank) const {
    return ends_[static_cast<std::size_t>(rank)];
  }

  /// Calls task(rank) for every rank, each on its own thread, and returns when all have returned.
  /// A rank that throws releases those that wait for it; the failure that came first is then thrown
  /// here, as qwen38::error of its kind. Work may go on afterwards only if every rank failed before
  /// any had waited for another, as when all refuse the same arguments; otherwise every further
  /// call throws (internal).
  void run(std::function<void(int rank)> const& task);

 private:
  void stop() noexcept;
  void work(int rank);
  void run_task(int rank);
  void record(int rank, error const& failure);

  std::vector<std::shared_ptr<communicator>> ends_;
  std::optional<std::string> broken_;  ///< what broke the group

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  std::function<void(int)> const* task_ = nullptr;
  std::uint64_t turn_ = 0;
  int pending_ = 0;  ///< ranks that have not finished the turn
  int failures_ = 0;
  std::optional<error> first_failure_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace qwen38::parallel

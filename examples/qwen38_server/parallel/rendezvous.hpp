// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "parallel/communicator.hpp"

namespace qwen38::parallel {

/// What must be the same on all ranks that meet in a call.
struct call_shape {
  enum class operation : std::uint8_t { sum, gather, merge, maximum, capture, replay };
  operation what = operation::sum;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(call_shape const&) const = default;
};

/// Where the threads of a group meet. What a thread wrote before a meeting is seen by all after it.
class rendezvous {
 public:
  explicit rendezvous(int size);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(gave_up_.size()); }

  /// Waits until every rank is here: awake for a moment, since a pass has many meetings and most
  /// waits are short, then asleep. Throws (internal) once a rank has given up.
  void meet();

  /// The first meeting of a call that ends with meet(). Throws (internal) on every rank where not
  /// all have come with the same shape.
  void begin_call(int rank, call_shape const& shape);

  /// communicator::max_over_ranks.
  void max_over_ranks(int rank, std::span<ranked_id> best);

  void give_up(int rank) noexcept;
  /// communicator::rejoin. false: a rank had waited in vain.
  [[nodiscard]] bool rejoin(int rank) noexcept;

 private:
  [[nodiscard]] bool is_abandoned() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t arrived_ = 0;
  std::atomic<std::uint64_t> round_{0};
  std::vector<bool> gave_up_;
  bool half_done_ = false;
  // Each rank's own; read by all between the meetings of a call.
  std::vector<call_shape> shapes_;
  std::vector<std::span<ranked_id const>> best_;
};

}  // namespace qwen38::parallel

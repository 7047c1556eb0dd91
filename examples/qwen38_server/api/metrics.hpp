// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/reply.hpp"
#include "api/reply_writer.hpp"
#include "engine/request.hpp"
#include "engine/service.hpp"

namespace qwen38::api {

/// Counts of values by size, as Prometheus has them: any thread observes, without a lock.
class histogram {
 public:
  static constexpr std::size_t max_bounds = 20;

  /// bounds: upper ends of the buckets, ascending, at most max_bounds, a namespace's array; values
  /// above the last one count in +Inf.
  template <std::size_t N>
  explicit histogram(std::array<double, N> const& bounds) : bounds_(bounds.data()), size_(N) {
    static_assert(N <= max_bounds);
  }

  void observe(double value) noexcept;
  /// The family `name` with its HELP and TYPE lines. The buckets, taken one by one, are what
  /// _count is made of, so that the two always agree.
  void append(std::string& out, std::string_view name, std::string_view help) const;

 private:
  double const* bounds_;
  std::size_t size_;
  std::array<std::atomic<std::uint64_t>, max_bounds + 1> counts_{};
  std::atomic<double> sum_ = 0;
};

/// "chat_completions", "completions"
[[nodiscard]] std::string_view name_of(endpoint kind);
/// "stop", "length", "cancelled", "queue_timeout", "deadline", "failed"
[[nodiscard]] std::string_view name_of(engine::finish_reason finish);

/// Launches of one kernel route since the start.
struct launch_count {
  std::string route;
  std::uint64_t launches = 0;
};

/// What GET /metrics tells: counters that only grow, histograms with fixed buckets, and the
/// engine's state at the time of the scrape. Names are vLLM's behind the prefix `qwen38_` where it
/// has one. Every label has a fixed set of values; none comes from a request. Thread-safe; what the
/// engine's thread calls takes no lock, but for publish_launches().
class metrics {
 public:
  /// A request came to an endpoint.
  void count_request(endpoint kind) noexcept;
  /// A request was not taken; status: the reply's.
  void count_refusal(int status) noexcept;
  /// One step's tokens of one request.
  void count_output(std::size_t tokens) noexcept;
  void observe_first_token(double seconds) noexcept { first_token_.observe(seconds); }
  void observe_step_gap(double seconds) noexcept { step_gap_.observe(seconds); }
  /// A request that the engine had taken is at its end. seconds: since it came.
  void count_end(engine::result const& outcome, double seconds) noexcept;
  /// Replaces the counts of kernel launches.
  void publish_launches(std::vector<launch_count> launches);

  struct log_counts {
    std::uint64_t lines = 0;
    std::uint64_t lost = 0;
  };
  /// The text exposition format 0.0.4.
  [[nodiscard]] reply exposition(engine::service::state const& now, log_counts const& log) const;

 private:
  using counter = std::atomic<std::uint64_t>;

  static constexpr std::array<double, 20> latency_bounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5,
      0.75,  1,      2.5,   5,    10,    25,   60,    120, 300,  600};
  static constexpr std::array<double, 16> gap_bounds = {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01,
                                                        0.015,  0.02,  0.03,   0.05,  0.075,  0.1,
                                                        0.25,   0.5,   1,      5};
  static constexpr std::array<double, 14> length_bounds = {
      1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144};

  std::array<counter, 2> requests_{};  // by endpoint
  std::array<counter, 6> ends_{};      // by finish_reason
  std::array<counter, 6> refusals_{};  // by the places of refusal_statuses, and others
  counter prompt_tokens_ = 0;
  counter cached_tokens_ = 0;
  counter output_tokens_ = 0;
  counter reasoning_tokens_ = 0;
  counter rounds_ = 0;  // with drafts
  counter drafted_ = 0;
  counter accepted_ = 0;
  std::array<counter, engine::max_draft_tokens> accepted_at_{};
  std::array<counter, model::round_depths.size()> rounds_at_{};  // that k auto chose
  histogram first_token_{latency_bounds};
  histogram step_gap_{gap_bounds};
  histogram per_token_{gap_bounds};
  histogram whole_{latency_bounds};
  histogram queued_{latency_bounds};
  histogram prefill_{latency_bounds};
  histogram decode_{latency_bounds};
  histogram prompt_length_{length_bounds};
  histogram output_length_{length_bounds};

  mutable std::mutex launches_mutex_;
  std::vector<launch_count> launches_;
};

}  // namespace qwen38::api

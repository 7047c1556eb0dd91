// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace qwen38::bench {

/// What a client saw of one request. Times in milliseconds.
struct request_trace {
  std::string error;  ///< "": the answer came whole
  /// Since the request was sent, of each chunk that held text, reasoning among it. Chunks that hold
  /// a role alone do not count.
  std::vector<double> arrivals;
  double latency = 0;              ///< request sent to the end of the stream
  std::int64_t input_tokens = 0;   ///< as the server counts them
  std::int64_t cached_tokens = 0;  ///< of these, from its prefix cache
  std::int64_t output_tokens = 0;
  // Of the server's own report, where it makes one.
  std::int64_t rounds = 0;  ///< with drafts
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::vector<std::int64_t> accepted_at;
};

/// Limits in milliseconds that a good request keeps; negative: none.
struct service_level {
  double ttft = -1;
  double tpot = -1;
  double e2el = -1;
};

/// The figures of a run under the names that `vllm bench serve` gives them. Over requests whose
/// answer came whole:
///
///     ttft  request sent to the first chunk with text
///     tpot  (latency - ttft) / (output tokens - 1), of requests with two tokens or more
///     itl   each gap between chunks with text; with speculation a chunk holds several tokens
///     e2el  request sent to the end of the stream
///     request_goodput  requests per second that keep the service level, if one is set
///     spec_decode_acceptance_length  tau = 1 + accepted / rounds
///
/// std_ is the population's; percentiles interpolate linearly between ranks.
[[nodiscard]] nlohmann::ordered_json serving_report(std::vector<request_trace> const& traces,
                                                    double duration_s, service_level const& wanted);

/// The value below which `percent` of the values lie. 0 for none.
[[nodiscard]] double percentile(std::vector<double> values, double percent);

}  // namespace qwen38::bench

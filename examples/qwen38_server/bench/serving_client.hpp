// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/serving_report.hpp"

namespace qwen38::bench {

struct serving_run {
  std::string host = "127.0.0.1";
  std::string port = "8080";
  std::string path = "/v1/chat/completions";
  std::string api_key;
  std::vector<std::string> bodies;  ///< one request each, in order; each asks for a stream
  std::int64_t concurrency = 0;     ///< most requests at the same time; 0: no limit
  /// Requests per second, at the times of a Poisson process; 0: as soon as `concurrency` allows.
  double request_rate = 0;
  std::uint64_t seed = 0;  ///< of these times
  double timeout_s = 600;  ///< for each request
};

struct serving_traces {
  std::vector<request_trace> requests;  ///< in the order of `bodies`
  double duration_s = 0;                ///< first request sent to last answer's end
};

/// Sends all requests, each on a connection of its own, from one thread. A request that fails has
/// its reason in its trace. Throws std::exception if the host has no address.
[[nodiscard]] serving_traces run_serving_clients(serving_run const& wanted);

}  // namespace qwen38::bench

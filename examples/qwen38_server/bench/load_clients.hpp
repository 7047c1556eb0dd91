// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qwen38::bench {

/// What clients saw. Times in milliseconds.
struct load_result {
  int completed = 0;  ///< streams of exactly the expected text and [DONE]
  int errors = 0;     ///< any other end
  double wall_ms = 0;
  std::vector<double> first_event;  ///< of each stream: request sent to first event
  std::vector<double> first_token;  ///< of each stream: request sent to first text
  std::vector<double> gaps;         ///< between the arrivals of a stream's events
  std::vector<double> health;       ///< round trips of /health while streams run
  int health_errors = 0;
};

/// Opens `clients` streams at once on a port of this machine and reads each to its end, all on one
/// thread; another asks for /health every 50 ms. expected: the text of each answer.
[[nodiscard]] load_result run_load_clients(std::uint16_t port, int clients,
                                           std::string const& expected);

}  // namespace qwen38::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/draft_depth.hpp"
#include "cli/load.hpp"

namespace qwen38::cli {

struct suite_bench_flags {
  std::string suite;  ///< "domain" or "aime"
  std::vector<draft_depth> depths = {{3}, {7}, {15}, automatic_depth};
  std::int64_t max_tokens = 0;  ///< 0: 1024 of domain, 16384 of aime, or what the context leaves
  int seeds = 0;                ///< 1, 2, ...; 0: 3 of domain, 5 of aime
  std::size_t tasks = 0;        ///< of the suite, from the first; 0: all
  bool json = false;
};

/// Tokens a second of an answer's decoding:
///   (generated - (tau + 1)) / decode seconds
/// where tau + 1 tokens, those of prefill and of a first round, are taken to have come with the
/// first token. 0 where there are no more.
[[nodiscard]] double suite_tok_s(std::int64_t generated, double tau, double decode_ms);

/// Answers a suite's tasks (cli/suite_tasks.hpp) one after the other through the engine, each with
/// every depth and seed; tasks that are greedy with one seed. Prints for each cell and depth mean
/// and spread (the sample's standard deviation) of tokens/s and tau, and where answers are known
/// how many were right and the mean time to a right one.
/// @return the exit code
int bench_suite(model_flags flags, suite_bench_flags const& wanted);

}  // namespace qwen38::cli

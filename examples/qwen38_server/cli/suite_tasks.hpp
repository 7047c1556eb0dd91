// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.hpp"

namespace qwen38::cli {

/// One prompt of a suite, with all that decides how it is answered.
struct suite_task {
  std::string cell;
  std::string prompt;
  bool thinking = false;
  std::string effort = "medium";     ///< of thinking
  engine::sampling_params sampling;  ///< but for the seed
  std::string expected_json;         ///< "": any answer will do
  std::optional<std::int64_t> answer;
};

/// Kinds of text that are drafted well and badly, seven cells: invoice_json, log_json,
/// json_records, mergesort, code, math_thinking, prose. All greedy but for the last two, which are
/// sampled as the model's authors advise.
[[nodiscard]] std::vector<suite_task> domain_suite();

/// Problems in the manner of a competition, with integers from 0 to 999 for answers; temperature
/// 0.6, top-p 0.95, top-k 20, presence penalty 1.0, medium effort.
[[nodiscard]] std::vector<suite_task> aime_suite();

/// The number that an answer gives: what stands in its last \boxed{}, else its last integer.
[[nodiscard]] std::optional<std::int64_t> final_integer(std::string_view text);

}  // namespace qwen38::cli

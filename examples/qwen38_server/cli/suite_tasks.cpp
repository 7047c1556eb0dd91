// SPDX-License-Identifier: Apache-2.0
#include "cli/suite_tasks.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace qwen38::cli {
namespace {

engine::sampling_params sampling_of(float temperature, float presence) {
  engine::sampling_params out;
  out.temperature = temperature;
  out.top_p = temperature > 0 ? 0.95F : 1.0F;
  out.top_k = temperature > 0 ? 20 : 0;
  out.min_p = 0;
  out.repetition_penalty = 1;
  out.frequency_penalty = 0;
  out.presence_penalty = presence;
  return out;
}

suite_task greedy(std::string cell, std::string prompt, std::string expected_json = "") {
  suite_task task;
  task.cell = std::move(cell);
  task.prompt = std::move(prompt);
  task.sampling = sampling_of(0, 0);
  task.expected_json = std::move(expected_json);
  return task;
}

suite_task sampled(std::string cell, std::string prompt, bool thinking, float presence) {
  suite_task task = greedy(std::move(cell), std::move(prompt));
  task.thinking = thinking;
  task.sampling = sampling_of(0.6F, presence);
  return task;
}

suite_task problem(std::string prompt, std::int64_t answer) {
  suite_task task =
      sampled("aime", std::move(prompt) + " Put the final integer in \\boxed{}.", true, 1.0F);
  task.answer = answer;
  return task;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::vector<suite_task> domain_suite() {
  std::vector<suite_task> all;
  all.push_back(greedy(
      "invoice_json",
      "Reformat the following document below into JSON. JSON only.\n===\n**Account** : Ilse "
      "Marchetti; **Ref** : KD520-71B; **Issued** : 2037-04-19\n\nITEMS\nat 12.50; 3; lantern:\nat "
      "7.00; 2; Folding chair:\n\nTotal is EUR 51.50\n===",
      R"({"invoice_id": "KD520-71B", "customer": "Ilse Marchetti", "date": "2037-04-19",)"
      R"( "currency": "EUR", "items": [{"name": "lantern", "qty": 3, "price": 12.5},)"
      R"( {"name": "Folding chair", "qty": 2, "price": 7.0}], "total": 51.5})"));
  all.push_back(greedy(
      "log_json",
      "Turn each line of this log into a JSON object with the fields time, level, service and "
      "message, and answer with one JSON array.\n"
      "2036-02-11T08:14:03Z WARN gateway: upstream answered after 2310 ms\n"
      "2036-02-11T08:14:05Z INFO gateway: retry 1 of 3\n"
      "2036-02-11T08:14:09Z ERROR billing: ledger 7 is locked\n"
      "2036-02-11T08:14:10Z INFO billing: ledger 7 is free again"));
  all.push_back(greedy(
      "json_records",
      "Write a JSON array of eight records of made-up weather stations. Each record has id (an "
      "integer from 1 on), name, country, latitude, longitude, height_m and active (true or "
      "false). JSON only."));
  all.push_back(greedy("mergesort",
                       "Write merge sort in Python as one function with a helper that merges, with "
                       "type hints and no libraries. Code only."));
  all.push_back(greedy(
      "code",
      "Write a C++17 class that holds a fixed number of values in a ring buffer: push, pop, size "
      "and full, with a unit test of each. Code only."));
  all.push_back(
      sampled("math_thinking",
              "A tank holds 240 litres. One pipe fills it in 6 hours, another one empties "
              "it in 10. Both are opened when it is a quarter full. After how many hours "
              "is it full?",
              true, 0));
  all.push_back(sampled("prose",
                        "Describe a harbour town on the morning after a storm, in about 150 words.",
                        false, 0));
  return all;
}

std::vector<suite_task> aime_suite() {
  return {
      problem("How many positive integers up to 1000 have exactly four positive divisors?", 292),
      problem("Find the remainder when 7 to the power of 2026 is divided by 1000.", 649),
      problem("How many subsets of {1, 2, ..., 12} contain no two consecutive integers?", 377),
      problem("Find the least positive integer n such that n! ends in exactly 40 zeros.", 165),
      problem("In how many ways can a 2 by 12 board be covered by 1 by 2 dominoes?", 233),
      problem("How many ordered triples of positive integers (a, b, c) satisfy abc = 3600?", 540),
      problem("How many positive integers up to 1000 are the sum of two squares of positive "
              "integers?",
              309),
      problem("How many palindromes of five digits are divisible by 11?", 82),
      problem("Two fair dice are thrown until a sum of 7 or 11 comes. The probability that 7 comes "
              "first is a / b in lowest terms. Find 100 a + b.",
              304),
      problem("Find the number of pairs of integers (x, y) with x^2 + y^2 at most 200.", 633),
  };
}

std::optional<std::int64_t> final_integer(std::string_view text) {
  constexpr std::string_view box = "\\boxed{";
  if (auto const at = text.rfind(box); at != std::string_view::npos) {
    text.remove_prefix(at + box.size());
    text = text.substr(0, text.find('}'));
  }
  auto const last = std::find_if(text.rbegin(), text.rend(), is_digit);
  if (last == text.rend()) return std::nullopt;
  auto const first = std::find_if_not(last, text.rend(), is_digit);
  bool const is_negative = first != text.rend() && *first == '-';
  std::string_view const digits(first.base(), last.base());
  std::int64_t value = 0;
  auto const [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return is_negative ? -value : value;
}

}  // namespace qwen38::cli

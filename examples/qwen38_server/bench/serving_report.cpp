// SPDX-License-Identifier: Apache-2.0
#include "bench/serving_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>

namespace qwen38::bench {
namespace {

double mean_of(std::vector<double> const& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(std::vector<double> const& values) {
  if (values.empty()) return 0;
  double const mean = mean_of(values);
  double sum = 0;
  for (double const value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

void add_summary(nlohmann::ordered_json& report, std::string const& name,
                 std::vector<double> const& values) {
  report["mean_" + name + "_ms"] = mean_of(values);
  report["median_" + name + "_ms"] = percentile(values, 50);
  report["std_" + name + "_ms"] = deviation_of(values);
  report["p90_" + name + "_ms"] = percentile(values, 90);
  report["p99_" + name + "_ms"] = percentile(values, 99);
}

bool keeps(service_level const& wanted, request_trace const& one, double tpot) {
  return (wanted.ttft < 0 || one.arrivals.front() <= wanted.ttft) &&
         (wanted.tpot < 0 || tpot <= wanted.tpot) &&
         (wanted.e2el < 0 || one.latency <= wanted.e2el);
}

double ratio(double value, double over) {
  return over > 0 ? value / over : 0;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  double const rank = percent / 100 * static_cast<double>(values.size() - 1);
  auto const below = static_cast<std::size_t>(rank);
  auto const above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

nlohmann::ordered_json serving_report(std::vector<request_trace> const& traces, double duration_s,
                                      service_level const& wanted) {
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  std::vector<double> e2el;
  std::int64_t input = 0;
  std::int64_t cached = 0;
  std::int64_t output = 0;
  std::int64_t chunks = 0;
  std::int64_t good = 0;
  request_trace speculation;
  for (auto const& one : traces) {
    if (!one.error.empty() || one.arrivals.empty()) continue;
    input += one.input_tokens;
    cached += one.cached_tokens;
    output += one.output_tokens;
    chunks += std::ssize(one.arrivals);
    double const first = one.arrivals.front();
    ttft.push_back(first);
    e2el.push_back(one.latency);
    double per_token = 0;
    if (one.output_tokens > 1) {
      per_token = (one.latency - first) / static_cast<double>(one.output_tokens - 1);
      tpot.push_back(per_token);
    }
    for (std::size_t i = 1; i < one.arrivals.size(); ++i)
      itl.push_back(one.arrivals[i] - one.arrivals[i - 1]);
    good += keeps(wanted, one, per_token) ? 1 : 0;
    speculation.rounds += one.rounds;
    speculation.drafted += one.drafted;
    speculation.accepted += one.accepted;
    speculation.accepted_at.resize(
        std::max(speculation.accepted_at.size(), one.accepted_at.size()));
    for (std::size_t i = 0; i < one.accepted_at.size(); ++i)
      speculation.accepted_at[i] += one.accepted_at[i];
  }

  auto const completed = std::ssize(ttft);
  nlohmann::ordered_json report;
  report["duration"] = duration_s;
  report["completed"] = completed;
  report["failed"] = std::ssize(traces) - completed;
  report["total_input_tokens"] = input;
  report["total_cached_tokens"] = cached;
  report["total_output_tokens"] = output;
  report["request_throughput"] = ratio(static_cast<double>(completed), duration_s);
  if (wanted.ttft >= 0 || wanted.tpot >= 0 || wanted.e2el >= 0)
    report["request_goodput"] = ratio(static_cast<double>(good), duration_s);
  report["output_throughput"] = ratio(static_cast<double>(output), duration_s);
  report["total_token_throughput"] = ratio(static_cast<double>(input + output), duration_s);
  report["tokens_per_chunk"] = ratio(static_cast<double>(output), static_cast<double>(chunks));
  add_summary(report, "ttft", ttft);
  add_summary(report, "tpot", tpot);
  add_summary(report, "itl", itl);
  add_summary(report, "e2el", e2el);
  if (speculation.rounds > 0) {
    auto const rounds = static_cast<double>(speculation.rounds);
    report["spec_decode_num_drafts"] = speculation.rounds;
    report["spec_decode_draft_tokens"] = speculation.drafted;
    report["spec_decode_accepted_tokens"] = speculation.accepted;
    report["spec_decode_acceptance_rate"] = 100 * ratio(static_cast<double>(speculation.accepted),
                                                        static_cast<double>(speculation.drafted));
    report["spec_decode_acceptance_length"] =
        1 + static_cast<double>(speculation.accepted) / rounds;
    auto& places = report["spec_decode_per_position_acceptance_rates"] =
        nlohmann::ordered_json::array();
    for (auto const count : speculation.accepted_at)
      places.push_back(static_cast<double>(count) / rounds);
  }
  return report;
}

}  // namespace qwen38::bench

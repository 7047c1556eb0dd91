// SPDX-License-Identifier: Apache-2.0
#include "model/measure_rounds.hpp"

#include <numeric>

namespace qwen38::model {
namespace {

constexpr int timed_rounds = 2;
constexpr double slow_ms = 50;
constexpr std::int64_t far_tokens = 8192;

class round_timer {
 public:
  round_timer(causal_lm& lm, measure_options const& options)
      : lm_(lm), limits_(lm.get_limits()), options_(options) {
    // All depths' rounds, each of which settles a token, and the rows of the deepest.
    std::int64_t const rounds =
        std::ssize(round_depths) * (options_.untimed_rounds + timed_rounds) + max_settled;
    std::int64_t const cached = std::int64_t{limits_.kv_pages} * limits_.page_tokens;
    std::int64_t const most = std::min(limits_.max_context, cached) - rounds;
    near_ = std::min<std::int64_t>(most, limits_.prefill_chunk);
    near_pages_ = pages_for(near_ + rounds);
    far_pages_ = pages_for(most + rounds);
    std::int64_t const farthest = std::min(most, far_tokens);
    far_ = farthest / limits_.prefill_chunk * limits_.prefill_chunk;
  }

  [[nodiscard]] bool has_room() const { return near_ > 0; }

  round_costs measure() {
    round_costs costs;
    costs.max_rows = limits_.max_rows;
    measure_lanes(1, costs);
    int const lanes = std::min({options_.lanes, static_cast<int>(limits_.max_lanes),
                                static_cast<int>(limits_.kv_pages / near_pages_)});
    if (lanes > 1) measure_lanes(lanes, costs);
    if (limits_.snapshots > 0 &&
        far_ >= std::max(options_.least_far, 2 * std::int64_t{limits_.prefill_chunk}))
      measure_far(costs);
    return costs;
  }

 private:
  struct lane {
    std::int64_t position = 0;
    std::vector<std::int32_t> settled;
  };

  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const {
    return (tokens + limits_.page_tokens - 1) / limits_.page_tokens;
  }
  [[nodiscard]] static std::vector<std::int32_t> pages(std::int64_t first, std::int64_t count) {
    std::vector<std::int32_t> list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), static_cast<std::int32_t>(first));
    return list;
  }

  /// A prompt's rows from the lane's position on, and the MTP layer's, one behind.
  void prefill(int index, lane& at, std::int64_t rows) {
    std::vector<std::int32_t> const ids(static_cast<std::size_t>(rows), 0);
    sequence_rows const chunk{index, at.position, ids, false, rows - 1};
    lm_.forward({&chunk, 1});
    std::int64_t const from = std::max<std::int64_t>(at.position - 1, 0);
    at.position += rows;
    at.settled.assign(1, 0);
    std::vector<std::int32_t> const shifted(static_cast<std::size_t>(at.position - 1 - from), 0);
    if (shifted.empty()) return;
    std::int32_t none = -1;
    draft_rows const behind{index, from, shifted, true, false};
    lm_.draft({&behind, 1}, {&none, 1});
  }

  double time_round(std::span<lane> lanes, int drafts) {
    std::vector<round_lane> batch;
    std::vector<round_result> results(lanes.size());
    for (int index = 0; index < std::ssize(lanes); ++index) {
      lane const& one = lanes[static_cast<std::size_t>(index)];
      batch.push_back({index, one.position, one.settled, drafts, &greedy_});
    }
    auto const begun = options_.now();
    lm_.round(batch, results);
    for (round_lane const& one : batch) {
      if (one.drafts > 0) lm_.keep(one.lane, 1);
    }
    double const ms = std::chrono::duration<double, std::milli>(options_.now() - begun).count();
    for (lane& one : lanes) ++one.position;
    return ms;
  }

  /// ms of a round of each depth, deepest first: behind rounds without drafts the MTP layer would
  /// have more rows to catch up with.
  template <class Take>
  void time_depths(std::vector<lane>& lanes, Take const& take) {
    for (std::size_t place = round_depths.size(); place-- > 0;) {
      int const k = round_depths[place];
      auto const fit = static_cast<std::size_t>(std::max(1, limits_.max_rows / (k + 1)));
      auto const some = std::span(lanes).first(std::min(fit, lanes.size()));
      double best = 0;
      for (int i = 0; i < options_.untimed_rounds; ++i) time_round(some, k);
      for (int i = 0; i < timed_rounds && best <= slow_ms; ++i) {
        double const ms = time_round(some, k);
        best = i == 0 ? ms : std::min(best, ms);
      }
      take(place, static_cast<int>(some.size()), best);
    }
  }

  void measure_lanes(int count, round_costs& into) {
    std::vector<lane> lanes(static_cast<std::size_t>(count));
    for (int index = 0; index < count; ++index) {
      lm_.begin(index, pages(index * near_pages_, near_pages_));
      prefill(index, lanes[static_cast<std::size_t>(index)], near_);
    }
    time_depths(lanes, [&](std::size_t place, int timed, double ms) {
      auto& points = into.of[place].points;
      if (points.empty() || timed > points.back().lanes) points.push_back({timed, ms});
    });
  }

  void measure_far(round_costs& into) {
    std::int64_t const chunk = limits_.prefill_chunk;
    auto const all = pages(0, far_pages_);
    std::vector<lane> lanes(1);
    lm_.begin(0, all);
    prefill(0, lanes.front(), chunk);
    lm_.save(0, 0);
    lm_.resume(0, all, 0, far_ - chunk);
    lanes.front() = {far_ - chunk, {}};
    prefill(0, lanes.front(), chunk);
    time_depths(lanes, [&](std::size_t place, int, double ms) {
      double const more = ms - into.of[place].points.front().ms;
      into.of[place].ms_per_token = std::max(0.0, more / static_cast<double>(far_ - near_));
    });
  }

  causal_lm& lm_;
  causal_lm::limits const& limits_;
  measure_options const& options_;
  std::int64_t near_ = 0;        ///< tokens of a short context
  std::int64_t near_pages_ = 0;  ///< of a lane
  std::int64_t far_ = 0;         ///< of a long one
  std::int64_t far_pages_ = 0;   ///< all that a lane may have
  ops::token_choice const greedy_ = {};
};

}  // namespace

std::optional<round_costs> measure_rounds(causal_lm& lm, measure_options const& options) {
  if (!lm.get_limits().has_mtp) return std::nullopt;
  round_timer timer(lm, options);
  if (!timer.has_room()) return std::nullopt;
  return timer.measure();
}

}  // namespace qwen38::model

// SPDX-License-Identifier: Apache-2.0
#include "gemm_tune/tuner.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <stdexcept>

#include "gemm_tune/candidates.hpp"
#include "support/captured_graph.hpp"
#include "support/gemm_launches.hpp"
#include "support/rotation.hpp"
#include "support/statistics.hpp"

namespace qpn::bench::tune {

namespace {

/// Choices that take longer than this times the fastest, by one replay, are timed no more.
constexpr double still_in_the_race = 1.1;

gemm_problem problem_of(gemm_tuning_row const& row) {
  gemm_problem problem;
  problem.max_m = row.last_m;
  problem.tuning = {&row, 1};
  return problem;
}

/// A graph of launches that run as one choice says. Its address is in the plan.
struct trial {
  trial(gemm_choice choice, cold_weights const& weights, activations const& with,
        std::int64_t count, machine const& gpu)
      : row{weights.layout().format,
            weights.layout().n,
            weights.layout().k,
            with.m,
            with.m,
            choice},
        gemm(weights.layout(), problem_of(row), gpu),
        graph(gpu.stream(), [&] { launch_all(gemm, weights, with, count, gpu); }),
        launches(count) {}
  trial(trial const&) = delete;
  trial& operator=(trial const&) = delete;

  [[nodiscard]] double timed_launch() const {
    return graph.timed_replay() / static_cast<double>(launches);
  }

  gemm_tuning_row row;
  planned_gemm gemm;
  captured_graph graph;
  std::int64_t launches;
  std::vector<double> us;
};

/// Launches of each graph: as many as were asked for, or as fit the time.
std::int64_t launches_for(options const& chosen, gemm_choice rule, cold_weights const& weights,
                          activations const& with, machine const& gpu) {
  trial const once(rule, weights, with, weights.copies(), gpu);
  static_cast<void>(once.timed_launch());
  auto const fit = static_cast<std::int64_t>(static_cast<double>(chosen.most_ms) * 1e3 /
                                             std::max(once.timed_launch(), 1.0));
  return launches_of(weights.copies(), std::min(chosen.launches, fit));
}

/// Holds what each trial leaves in y to the promise, and to the bits of those that add alike.
class result_check {
 public:
  result_check(model_shape const& shape, cold_weights const& weights, activations& with,
               machine const& gpu)
      : shape_(shape), weights_(weights), with_(with), gpu_(gpu) {}

  void run(trial const& one) {
    gemm_choice const choice = one.row.choice;
    with_.y.refill();
    static_cast<void>(one.timed_launch());
    std::vector<std::byte> const y = with_.y.download();
    for (known_result const& known : known_) {
      if (!adds_alike(known.choice, choice)) continue;
      if (known.y != y) {
        throw wrong_output(name_of(choice) + " and " + text_of(known.choice) +
                           " give different bits of y");
      }
      return;
    }
    require_right(name_of(choice), output_of(weights_, with_, gpu_));
    known_.push_back({choice, y});
  }

 private:
  struct known_result {
    gemm_choice choice;
    std::vector<std::byte> y;
  };

  [[nodiscard]] std::string name_of(gemm_choice choice) const {
    return std::string(shape_.name) + ", m " + std::to_string(with_.m) + ", " + text_of(choice);
  }

  model_shape shape_;
  cold_weights const& weights_;
  activations& with_;
  machine const& gpu_;
  std::vector<known_result> known_;
};

tuned_call tune_call(options const& chosen, model_shape const& shape, std::int64_t m,
                     cold_weights const& weights, machine const& gpu) {
  activations with(shape, m, gpu);
  std::vector<gemm_choice> const choices = candidates_of(weights.layout(), m, gpu.info());
  std::int64_t const launches = launches_for(chosen, choices.front(), weights, with, gpu);
  result_check check(shape, weights, with, gpu);
  std::deque<trial> trials;
  std::vector<double> once;
  for (gemm_choice const choice : choices) {
    trials.emplace_back(choice, weights, with, launches, gpu);
    check.run(trials.back());
    once.push_back(trials.back().timed_launch());
  }
  double const limit = still_in_the_race * *std::min_element(once.begin(), once.end());
  // In turns, so that what changes with time changes all of them.
  for (std::int64_t replay = 0; replay < chosen.replays; ++replay) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (i == 0 || once[i] <= limit) trials[i].us.push_back(trials[i].timed_launch());
    }
  }
  tuned_call call{shape, first_m_of(chosen.m, m), m, {}};
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].us.empty()) trials[i].us.push_back(once[i]);
    call.choices.push_back({choices[i], trials[i].us});
  }
  return call;
}

}  // namespace

report tune(options const& chosen, std::string const& command,
            std::function<void(report const&)> const& done) {
  machine const gpu;
  report measured;
  measured.context = gpu.context(command);
  if (gpu.info().compute_capability < 80) {
    throw std::runtime_error("layout sm70_quadpair leaves nothing to choose on this GPU");
  }
  for (model_shape const& shape : chosen.shapes) {
    std::int64_t const bytes = layout_of(shape, gpu.info()).total_bytes;
    cold_weights const weights(shape, copies_of(bytes, rotation_bytes(gpu.info().l2_bytes)), 1,
                               gpu);
    for (std::int64_t const m : chosen.m) {
      measured.calls.push_back(tune_call(chosen, shape, m, weights, gpu));
    }
    done(measured);
    std::fprintf(stderr, "%s is done\n", std::string(shape.name).c_str());
  }
  return measured;
}

}  // namespace qpn::bench::tune

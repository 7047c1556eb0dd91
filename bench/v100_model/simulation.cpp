// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <vector>

namespace qpn::bench::v100 {

namespace {

struct named_time {
  char const* name;
  double cycles;
};

/// Cycles that one turn of a warp keeps each part of a multiprocessor.
std::array<named_time, 7> times_in_sm(loop_turn const& turn) {
  double const per_scheduler = 1 / schedulers.value;
  return {{{"issue slots", turn.instructions * per_scheduler},
           {"ALU", turn.alu * pipe_cycles.value * per_scheduler},
           {"FMA pipe", turn.fma * pipe_cycles.value * per_scheduler},
           {"FP16 pipe", turn.fp16 * pipe_cycles.value * per_scheduler},
           {"conversions", turn.xu * xu_cycles.value * per_scheduler},
           {"tensor cores", turn.hmma * hmma_cycles.value * per_scheduler},
           {"L1 wavefronts", turn.wavefronts * wavefront_cycles.value}}};
}

/// Cycles of one warp alone: its instructions, and the loads that the next turn waits for.
double cycles_alone(loop_turn const& turn) {
  double const of_loads = load_latency.value + turn.unhidden * turn.stall_cycles;
  return std::max(turn.stall_cycles, of_loads / turn.turns_ahead);
}

/// (sum of x^p)^(1/p), without overflow for large p.
class together {
 public:
  explicit together(double p) : p_(p) {}
  void add(double x) {
    if (x <= 0) return;
    if (x > largest_) {
      sum_ *= std::pow(largest_ / x, p_);
      largest_ = x;
    }
    sum_ += std::pow(x / largest_, p_);
  }
  [[nodiscard]] double value() const { return largest_ * std::pow(sum_, 1 / p_); }

 private:
  double p_;
  double largest_ = 0;
  double sum_ = 0;
};

class machine {
 public:
  machine(launch const& work, fitted_constants const& constants)
      : work_(work),
        constants_(constants),
        sms_(static_cast<std::size_t>(sm_count.value)),
        ctas_(work.ctas.size()) {}

  /// Cycles until the last CTA has ended.
  double run() {
    for (int round = 0; round < work_.ctas_per_sm; ++round) {
      for (std::size_t sm = 0; sm < sms_.size(); ++sm) start_next_cta(sm);
    }
    while (ended_ < ctas_.size()) advance();
    return now_;
  }

 private:
  struct sm_state {
    double progress = 0;  ///< turns that each of its running warps has made
    double speed = 0;     ///< turns a cycle of each of them
    /// Progress at which a warp has made its turns, and its CTA.
    std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                        std::greater<>>
        ends;
  };
  struct cta_state {
    std::size_t sm = 0;
    std::size_t part = 0;
    std::size_t running = 0;  ///< warps
  };
  enum class event : int { loop_begins, part_ends };
  struct timer {
    double at;
    std::size_t cta;
    event what;
    [[nodiscard]] bool operator>(timer const& other) const {
      return at != other.at ? at > other.at : cta > other.cta;
    }
  };

  void start_next_cta(std::size_t sm) {
    if (started_ == ctas_.size()) return;
    ctas_[started_].sm = sm;
    timers_.push({now_ + work_.start_cycles, started_, event::loop_begins});
    ++started_;
  }

  void begin_loop(std::size_t cta) {
    launch_part const& part = work_.ctas[cta][ctas_[cta].part];
    sm_state& sm = sms_[ctas_[cta].sm];
    for (double const turns : part.turns) {
      if (turns <= 0) continue;
      sm.ends.push({sm.progress + turns, cta});
      ++ctas_[cta].running;
    }
    if (ctas_[cta].running == 0) reduce(cta);
  }

  void reduce(std::size_t cta) {
    launch_part const& part = work_.ctas[cta][ctas_[cta].part];
    double cycles = part.reduce_cycles;
    if (part.group >= 0) {
      auto& missing = missing_.try_emplace(part.group, parties(part.group)).first->second;
      if (--missing == 0) cycles += part.last_cycles;
    }
    timers_.push({now_ + cycles, cta, event::part_ends});
  }

  void end_part(std::size_t cta) {
    if (++ctas_[cta].part < work_.ctas[cta].size()) {
      timers_.push({now_ + work_.start_cycles, cta, event::loop_begins});
      return;
    }
    ++ended_;
    start_next_cta(ctas_[cta].sm);
  }

  /// CTAs that share a tile group.
  int parties(std::int64_t group) {
    if (parties_.empty()) {
      for (auto const& cta : work_.ctas) {
        for (launch_part const& part : cta) {
          if (part.group >= 0) ++parties_[part.group];
        }
      }
    }
    return parties_.at(group);
  }

  void set_speeds() {
    double dram = 0;
    double l2 = 0;
    for (sm_state& sm : sms_) {
      auto const warps = sm.ends.size();
      sm.speed = warps == 0 ? 0 : 1 / (pace(warps) * static_cast<double>(warps));
      double const turns = sm.speed * static_cast<double>(warps);
      dram += turns * work_.turn.dram_bytes;
      l2 += turns * work_.turn.l2_bytes;
    }
    together limits(constants_.interference);
    limits.add(1);
    limits.add(dram / bytes_per_cycle(read_gb_s));
    limits.add(l2 / bytes_per_cycle(l2_gb_s));
    for (sm_state& sm : sms_) sm.speed /= limits.value();
  }

  double pace(std::size_t warps) {
    if (paces_.size() <= warps) paces_.resize(warps + 1, 0);
    if (paces_[warps] == 0) {
      paces_[warps] = cycles_per_turn(work_.turn, static_cast<int>(warps), constants_);
    }
    return paces_[warps];
  }

  /// To the next moment at which something begins or ends, and all that does.
  void advance() {
    set_speeds();
    double next = timers_.empty() ? std::numeric_limits<double>::infinity() : timers_.top().at;
    for (sm_state const& sm : sms_) {
      if (sm.ends.empty()) continue;
      next = std::min(next, now_ + std::max(0.0, sm.ends.top().first - sm.progress) / sm.speed);
    }
    for (sm_state& sm : sms_) sm.progress += sm.speed * (next - now_);
    now_ = next;

    constexpr double tolerance = 1e-6;  // of a turn, of a cycle: what ends together, ends at once
    for (sm_state& sm : sms_) {
      while (!sm.ends.empty() && sm.ends.top().first <= sm.progress + tolerance) {
        std::size_t const cta = sm.ends.top().second;
        sm.ends.pop();
        if (--ctas_[cta].running == 0) reduce(cta);
      }
    }
    while (!timers_.empty() && timers_.top().at <= now_ + tolerance) {
      timer const due = timers_.top();
      timers_.pop();
      due.what == event::loop_begins ? begin_loop(due.cta) : end_part(due.cta);
    }
  }

  launch const& work_;
  fitted_constants constants_;
  std::vector<sm_state> sms_;
  std::vector<cta_state> ctas_;
  std::priority_queue<timer, std::vector<timer>, std::greater<>> timers_;
  std::map<std::int64_t, int> parties_;
  std::map<std::int64_t, int> missing_;
  std::vector<double> paces_;
  double now_ = 0;
  std::size_t started_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace

double cycles_per_turn(loop_turn const& turn, int warps, fitted_constants const& constants) {
  together times(constants.interference);
  times.add(cycles_alone(turn) / warps);
  for (named_time const& time : times_in_sm(turn)) times.add(time.cycles);
  return times.value();
}

bottleneck busiest_beside_dram(loop_turn const& turn, int warps) {
  double const dram = turn.dram_bytes / bytes_per_cycle(read_gb_s) * sm_count.value;
  bottleneck most{"memory latency", cycles_alone(turn) / warps / dram};
  auto const offer = [&](char const* name, double cycles) {
    if (cycles / dram > most.share_of_dram) most = {name, cycles / dram};
  };
  for (named_time const& time : times_in_sm(turn)) offer(time.name, time.cycles);
  offer("L2", turn.l2_bytes / bytes_per_cycle(l2_gb_s) * sm_count.value);
  return most;
}

double simulate(launch const& work, fitted_constants const& constants) {
  return constants.launch_us + microseconds(machine(work, constants).run());
}

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.hpp"

#include <algorithm>
#include <cmath>

namespace qwen38::engine {
namespace {

constexpr double newest_share = 0.125;  // of the latest request in the typical time
constexpr std::int64_t longest_wait_s = 60;

}  // namespace

void scheduler::enqueue(std::uint64_t ticket, time_point now) {
  entry added;
  added.ticket = ticket;
  added.submitted = now;
  queue_.push_back(added);
}

std::optional<std::uint64_t> scheduler::next() const {
  if (queue_.empty() || running_.size() >= options_.lanes) return std::nullopt;
  return queue_.front().ticket;
}

void scheduler::start(time_point now) {
  running_.push_back(queue_.front());
  running_.back().started = now;
  queue_.pop_front();
}

void scheduler::leave(std::uint64_t ticket, time_point now, bool answered) {
  auto const is_it = [&](entry const& one) { return one.ticket == ticket; };
  if (auto const place = std::ranges::find_if(running_, is_it); place != running_.end()) {
    if (answered) {
      double const took = std::chrono::duration<double>(now - place->started).count();
      typical_s_ = typical_s_ ? *typical_s_ + newest_share * (took - *typical_s_) : took;
    }
    running_.erase(place);
    return;
  }
  std::erase_if(queue_, is_it);
}

std::vector<scheduler::late> scheduler::overdue(time_point now) const {
  std::vector<late> out;
  auto const up = [&](entry const& one, std::chrono::milliseconds limit) {
    return limit.count() > 0 && now - one.submitted >= limit;
  };
  for (entry const& one : running_) {
    if (up(one, options_.request_timeout)) out.push_back({one.ticket, finish_reason::deadline});
  }
  for (entry const& one : queue_) {
    if (up(one, options_.request_timeout)) {
      out.push_back({one.ticket, finish_reason::deadline});
    } else if (up(one, options_.queue_timeout)) {
      out.push_back({one.ticket, finish_reason::queue_timeout});
    }
  }
  return out;
}

void scheduler::begin_turn() noexcept {
  ++turn_;
  chunks_ = 0;
}

std::optional<std::uint64_t> scheduler::next_chunk() {
  bool const decodes =
      std::ranges::any_of(running_, [](entry const& one) { return !one.prefills; });
  if (decodes && chunks_ > 0) return std::nullopt;
  auto const first = std::ranges::find_if(
      running_, [&](entry const& one) { return one.prefills && one.latest_turn < turn_; });
  if (first == running_.end()) return std::nullopt;
  first->latest_turn = turn_;
  ++chunks_;
  return first->ticket;
}

void scheduler::prefilled(std::uint64_t ticket) {
  for (entry& one : running_) {
    if (one.ticket == ticket) one.prefills = false;
  }
}

std::int64_t scheduler::retry_after_s() const noexcept {
  double const rounds = static_cast<double>(waiting() + 1) / static_cast<double>(options_.lanes);
  double const seconds = std::ceil(typical_s_.value_or(0) * rounds);
  return std::clamp(static_cast<std::int64_t>(std::min(seconds, 1e6)), std::int64_t{1},
                    longest_wait_s);
}

}  // namespace qwen38::engine

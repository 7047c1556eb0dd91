// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.hpp"

namespace qwen38::cli {

/// Gathers one request's output for a caller that waits; `on_delta`, if given, sees each piece as
/// it comes.
class collector final : public engine::observer {
 public:
  explicit collector(std::function<void(engine::output_delta const&)> on_delta = {})
      : on_delta_(std::move(on_delta)) {}

  void on_output(engine::output_delta const& delta) override {
    reasoning += delta.reasoning;
    content += delta.content;
    ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
    if (on_delta_) on_delta_(delta);
  }
  void on_finish(engine::result const& outcome) override {
    std::scoped_lock const lock(mutex_);
    outcome_ = outcome;
    finished_.notify_all();
  }

  /// Blocks until the request has ended; the members below are complete afterwards.
  engine::result wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return outcome_.has_value(); });
    return *outcome_;
  }

  /// wait(), but not longer than that; true: the request has ended.
  bool wait_for(std::chrono::milliseconds longest, engine::result& outcome) {
    std::unique_lock lock(mutex_);
    if (!finished_.wait_for(lock, longest, [&] { return outcome_.has_value(); })) return false;
    outcome = *outcome_;
    return true;
  }

  std::string reasoning;
  std::string content;
  std::vector<std::int32_t> ids;

 private:
  std::function<void(engine::output_delta const&)> on_delta_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::optional<engine::result> outcome_;
};

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "ops/cuda/device.hpp"
#include "support/error.hpp"

namespace qwen38::test {

/// Work of emulated streams that is kept while it is captured: each step comes behind the one
/// before it in its stream, and behind the marks that its stream has waited for. Nothing else is
/// promised about their order.
class kept_work {
 public:
  using places = std::vector<std::size_t>;  ///< of steps

  [[nodiscard]] std::size_t add(std::function<void()> work, places after) {
    std::scoped_lock const lock(mutex_);
    steps_.push_back({std::move(work), std::move(after)});
    return steps_.size() - 1;
  }

  /// All steps must lie before `last`.
  void end(places const& last) {
    is_open_ = false;
    std::vector<bool> joined(steps_.size(), false);
    for (std::size_t const place : last) joined[place] = true;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (!joined[i]) {
        throw error(error_kind::internal, "a capture ended before a stream was waited for");
      }
      for (std::size_t const place : steps_[i].after) joined[place] = true;
    }
  }
  void drop() noexcept { is_open_ = false; }
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

  /// In one of the orders that are promised, each time another one.
  void run() {
    std::vector<std::size_t> missing(steps_.size());
    std::vector<places> behind(steps_.size());
    places ready;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      missing[i] = steps_[i].after.size();
      for (std::size_t const place : steps_[i].after) behind[place].push_back(i);
      if (missing[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      std::swap(ready[random_() % ready.size()], ready.back());
      std::size_t const place = ready.back();
      ready.pop_back();
      steps_[place].work();
      for (std::size_t const other : behind[place]) {
        if (--missing[other] == 0) ready.push_back(other);
      }
    }
  }

 private:
  struct step {
    std::function<void()> work;
    places after;
  };

  std::mutex mutex_;
  std::vector<step> steps_;
  std::atomic<bool> is_open_ = true;
  std::minstd_rand random_;
};

class emulated_graph final : public ops::cuda::device_graph {
 public:
  std::shared_ptr<kept_work> const work = std::make_shared<kept_work>();
};

class emulated_mark final : public ops::cuda::device::mark {
 public:
  std::shared_ptr<kept_work> of;  ///< null: of work that was done at once
  kept_work::places after;
};

/// The end of a stream: what is done next is done at once, or kept.
class stream_end {
 public:
  [[nodiscard]] bool is_captured() const noexcept { return kept_ != nullptr && kept_->is_open(); }

  void begin(std::shared_ptr<kept_work> in) {
    kept_ = std::move(in);
    last_.clear();
  }
  [[nodiscard]] kept_work::places const& last() const noexcept { return last_; }

  template <class Work>
  void run_or_keep(Work const& work) {
    if (is_captured()) {
      last_ = {kept_->add(work, last_)};
    } else {
      work();
    }
  }

  // As cudaEventRecord() and cudaStreamWaitEvent() do it, a stream comes into a capture by waiting
  // for a mark of it.
  void record(emulated_mark& point) const {
    point.of = is_captured() ? kept_ : nullptr;
    point.after = last_;
  }
  void wait_for(emulated_mark const& point) {
    if (point.of == nullptr && !is_captured()) return;
    if (point.of == nullptr || !point.of->is_open()) {
      throw error(error_kind::internal, "a stream waits for a mark of another capture, or of none");
    }
    if (!is_captured()) begin(point.of);
    if (kept_ != point.of) throw error(error_kind::internal, "a stream is in another capture");
    last_.insert(last_.end(), point.after.begin(), point.after.end());
  }

 private:
  std::shared_ptr<kept_work> kept_;
  kept_work::places last_;
};

}  // namespace qwen38::test

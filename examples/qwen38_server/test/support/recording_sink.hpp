// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "api/reply.hpp"

namespace qwen38::test {

/// Keeps a reply, and whether the calls came in a legal order.
class recording_sink final : public api::reply_sink {
  template <class Read>
  auto locked(Read const& read) const {
    std::lock_guard const lock(mutex_);
    return read();
  }

 public:
  void send(api::reply whole) noexcept override {
    change([&] {
      legal_ = legal_ && !begun_ && !ended_;
      whole_ = std::move(whole);
      ended_ = true;
    });
  }
  void begin_stream() noexcept override {
    change([&] {
      legal_ = legal_ && !begun_ && !ended_;
      begun_ = true;
    });
  }
  void write(std::string_view frames) noexcept override {
    change([&] {
      legal_ = legal_ && begun_ && !ended_;
      frames_ += frames;
    });
  }
  void end_stream() noexcept override {
    change([&] {
      legal_ = legal_ && begun_ && !ended_;
      ended_ = true;
    });
  }

  bool wait_until_ended(std::chrono::seconds time = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return ended_; });
  }
  bool wait_until_frames(std::chrono::seconds time = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return !frames_.empty(); });
  }
  [[nodiscard]] bool legal() const {
    return locked([&] { return legal_; });
  }
  [[nodiscard]] bool begun() const {
    return locked([&] { return begun_; });
  }
  [[nodiscard]] bool ended() const {
    return locked([&] { return ended_; });
  }
  [[nodiscard]] api::reply whole() const {
    return locked([&] { return whole_; });
  }
  [[nodiscard]] std::string frames() const {
    return locked([&] { return frames_; });
  }

 private:
  template <class Change>
  void change(Change const& apply) {
    std::lock_guard const lock(mutex_);
    apply();
    changed_.notify_all();
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  api::reply whole_;
  std::string frames_;
  bool begun_ = false;
  bool ended_ = false;
  bool legal_ = true;
};

}  // namespace qwen38::test

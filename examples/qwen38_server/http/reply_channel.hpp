// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/reply.hpp"

namespace qwen38::http {

class reply_channel;

/// The channels that have something for the I/O thread. That thread is poked once when the list
/// becomes non-empty, so that an engine step that feeds many streams costs one wake-up.
class wake_list {
 public:
  /// poke: called from any thread, must make the I/O thread call take() soon.
  explicit wake_list(std::function<void()> poke) : poke_(std::move(poke)) {}
  void add(std::shared_ptr<reply_channel> channel);
  [[nodiscard]] std::vector<std::shared_ptr<reply_channel>> take();
  /// No poke after this returns.
  void shut();

 private:
  std::mutex mutex_;
  std::function<void()> poke_;
  std::vector<std::shared_ptr<reply_channel>> ready_;
};

/// The hand-off of one reply from the engine's thread, which never waits, to the I/O thread. Holds
/// at most `max_bytes` of a stream: a client that reads too slowly loses its stream, not our
/// memory.
class reply_channel final : public api::reply_sink,
                            public std::enable_shared_from_this<reply_channel> {
 public:
  struct content {
    std::optional<api::reply> whole;
    bool begun = false;  ///< the reply is a stream
    std::string frames;  ///< since the last take()
    bool ended = false;
    bool overflowed = false;  ///< frames were lost: drop the client
  };

  reply_channel(std::shared_ptr<wake_list> wakes, std::size_t max_bytes)
      : wakes_(std::move(wakes)), max_bytes_(max_bytes) {}

  void send(api::reply whole) noexcept override;
  void begin_stream() noexcept override;
  void write(std::string_view frames) noexcept override;
  void end_stream() noexcept override;

  /// I/O thread: what is new. `whole` and `frames` are moved out, the flags stay.
  [[nodiscard]] content take();
  [[nodiscard]] bool has_overflowed();
  /// I/O thread: `ready` is called there after new content arrived.
  void set_ready(std::function<void()> ready) { ready_ = std::move(ready); }
  /// I/O thread: what wake_list::take()'s caller calls.
  void notify() const {
    if (ready_) ready_();
  }
  /// I/O thread: the client is gone. Whatever comes is dropped; `ready` is not called any more.
  void close();

 private:
  template <class Change>
  void update(Change const& change);

  std::shared_ptr<wake_list> const wakes_;
  std::size_t const max_bytes_;
  std::function<void()> ready_;  // I/O thread only

  std::mutex mutex_;
  content content_;
  bool closed_ = false;
  bool listed_ = false;  // in the wake list, not yet taken
};

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#include "http/reply_channel.hpp"

#include <utility>

namespace qwen38::http {

void wake_list::add(std::shared_ptr<reply_channel> channel) {
  std::lock_guard const lock(mutex_);
  if (!poke_) return;  // nobody would take it, and it holds this list
  ready_.push_back(std::move(channel));
  if (ready_.size() == 1) poke_();
}

std::vector<std::shared_ptr<reply_channel>> wake_list::take() {
  std::lock_guard const lock(mutex_);
  return std::exchange(ready_, {});
}

void wake_list::shut() {
  std::lock_guard const lock(mutex_);
  poke_ = nullptr;
  ready_.clear();
}

template <class Change>
void reply_channel::update(Change const& change) {
  {
    std::lock_guard const lock(mutex_);
    if (closed_) return;
    change(content_);
    if (std::exchange(listed_, true)) return;
  }
  wakes_->add(shared_from_this());
}

void reply_channel::send(api::reply whole) noexcept {
  update([&](content& to) { to.whole = std::move(whole); });
}

void reply_channel::begin_stream() noexcept {
  update([](content& to) { to.begun = true; });
}

void reply_channel::write(std::string_view frames) noexcept {
  update([&](content& to) {
    if (to.overflowed) return;
    if (to.frames.size() + frames.size() <= max_bytes_) {
      to.frames += frames;
      return;
    }
    to.overflowed = true;
    to.frames = {};
    listed_ =
        false;  // the I/O thread may be waiting for the client: it must hear of this by itself
  });
}

void reply_channel::end_stream() noexcept {
  update([](content& to) { to.ended = true; });
}

reply_channel::content reply_channel::take() {
  std::lock_guard const lock(mutex_);
  listed_ = false;
  content out;
  out.whole = std::exchange(content_.whole, std::nullopt);
  out.frames = std::exchange(content_.frames, {});
  out.begun = content_.begun;
  out.ended = content_.ended;
  out.overflowed = content_.overflowed;
  return out;
}

bool reply_channel::has_overflowed() {
  std::lock_guard const lock(mutex_);
  return content_.overflowed;
}

void reply_channel::close() {
  ready_ = nullptr;
  std::lock_guard const lock(mutex_);
  closed_ = true;
  content_ = {};
}

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#include "api/request_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "support/error.hpp"

namespace qwen38::api {

request_log::request_log(options wanted) : wanted_(std::move(wanted)) {
  if (!open()) {
    throw error(error_kind::io, "The request log " + wanted_.path.string() +
                                    " cannot be opened: " + std::strerror(errno) + '.');
  }
  thread_ = std::thread([this] { run(); });
}

request_log::~request_log() {
  {
    std::lock_guard const lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (file_ >= 0) ::close(file_);
}

void request_log::write(std::string line) noexcept {
  line += '\n';
  {
    std::lock_guard const lock(mutex_);
    if (waiting_.size() >= wanted_.queue_limit) {
      ++lost_;
      overfull_ = true;
      return;
    }
    waiting_.push_back(std::move(line));
  }
  changed_.notify_one();
}

void request_log::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return waiting_.empty() && !writing_; });
}

void request_log::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto const line = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    bool const overfull = std::exchange(overfull_, false);
    lock.unlock();
    if (overfull) complain("takes lines too slowly; some are lost.");
    write_now(line);
    lock.lock();
    writing_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

bool request_log::open() {
  int const fresh = ::open(wanted_.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fresh < 0) return false;
  if (file_ >= 0) ::close(file_);
  file_ = fresh;
  return true;
}

void request_log::write_now(std::string const& line) {
  if (wanted_.reopen != nullptr && wanted_.reopen->exchange(false) && !open()) {
    complain(std::string("cannot be opened again, so the old file goes on: ") +
             std::strerror(errno) + '.');
    *wanted_.reopen = true;
  }
  struct stat before {};
  bool const regular = ::fstat(file_, &before) == 0 && S_ISREG(before.st_mode);
  ssize_t written = 0;
  do {
    written = ::write(file_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    ++lines_;
    complained_ = false;
    return;
  }
  ++lost_;
  std::string why = written < 0 ? std::strerror(errno) : "there is no room for a whole line";
  // Half a line would spoil the next one.
  if (written > 0 && regular && ::ftruncate(file_, before.st_size) != 0) {
    why += ", and half a line could not be taken back";
  }
  complain("takes no lines: " + why + "; requests go on, their lines are lost.");
}

void request_log::complain(std::string const& what) {
  if (std::exchange(complained_, true) || !wanted_.on_fault) return;
  wanted_.on_fault("The request log " + wanted_.path.string() + ' ' + what);
}

}  // namespace qwen38::api

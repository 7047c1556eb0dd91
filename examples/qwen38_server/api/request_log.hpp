// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace qwen38::api {

/// A file that takes one line per request, appended by a thread of its own, so that a slow or full
/// disk holds up no request. A line is written whole or not at all.
///
/// What cannot be written is lost: counted, and said once until a line can be written again. The
/// same where more than `queue_limit` lines wait.
class request_log {
 public:
  struct options {
    std::filesystem::path path;
    /// Told one sentence when lines begin to be lost, from the log's thread; may be empty.
    std::function<void(std::string const&)> on_fault = {};
    std::size_t queue_limit = 4096;
    /// Once true, the path is opened again before the next line, for whoever has moved the file
    /// away, and the flag becomes false. Outlives the log; a signal handler may set it.
    std::atomic<bool>* reopen = nullptr;
  };

  /// Throws qwen38::error (io) if the file cannot be opened.
  explicit request_log(options wanted);
  /// Writes what still waits.
  ~request_log();
  request_log(request_log const&) = delete;
  request_log& operator=(request_log const&) = delete;

  /// line: without a newline. Never waits for the disk.
  void write(std::string line) noexcept;

  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  /// Waits until all lines so far are written or lost.
  void flush();

 private:
  void run();
  void write_now(std::string const& line);
  void complain(std::string const& what);
  [[nodiscard]] bool open();

  options const wanted_;
  int file_ = -1;            // the log's thread, once it runs
  bool complained_ = false;  // the same

  std::atomic<std::uint64_t> lines_ = 0;
  std::atomic<std::uint64_t> lost_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<std::string> waiting_;
  bool writing_ = false;
  bool overfull_ = false;  // lines were lost for want of room since the last one was taken
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace qwen38::api

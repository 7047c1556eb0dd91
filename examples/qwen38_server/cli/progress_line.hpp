// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen38::cli {

/// How far a long command has come, on stderr: a line that is rewritten on a terminal, elsewhere
/// one line for each tenth of the work.
class progress_line {
 public:
  explicit progress_line(std::string command);
  ~progress_line();
  progress_line(progress_line const&) = delete;
  progress_line& operator=(progress_line const&) = delete;

  void show(std::uint64_t done, std::uint64_t total, std::string_view item);

 private:
  static constexpr unsigned none = ~0u;
  std::string command_;
  bool is_terminal_;
  unsigned shown_ = none;
};

}  // namespace qwen38::cli

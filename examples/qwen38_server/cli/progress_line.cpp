// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_line.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace qwen38::cli {

progress_line::progress_line(std::string command)
    : command_(std::move(command)), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

progress_line::~progress_line() {
  if (is_terminal_ && shown_ != none) std::fputc('\n', stderr);
}

void progress_line::show(std::uint64_t done, std::uint64_t total, std::string_view item) {
  auto const share = [&](unsigned parts) {
    return total == 0 ? parts
                      : static_cast<unsigned>(static_cast<double>(done) * parts /
                                              static_cast<double>(total));
  };
  unsigned const steps = share(is_terminal_ ? 1000 : 10);
  if (steps == shown_) return;
  shown_ = steps;
  if (!is_terminal_) {
    std::fprintf(stderr, "%s: %3u %%\n", command_.c_str(), steps * 10);
    return;
  }
  constexpr std::size_t width = 40;
  std::string bar(static_cast<std::size_t>(share(width)), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "\r[%s] %5.1f %%  %-48.48s", bar.c_str(), steps / 10.0,
               std::string(item).c_str());
}

}  // namespace qwen38::cli

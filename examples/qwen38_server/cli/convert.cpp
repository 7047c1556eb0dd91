// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "cli/subcommands.hpp"

namespace qwen38::cli {
namespace {

// A line that is rewritten on a terminal; elsewhere one line for each tenth of the work.
class progress_line {
 public:
  void show(checkpoint::convert_progress const& now) {
    auto const share = [&](unsigned parts) {
      return now.total == 0 ? parts
                            : static_cast<unsigned>(static_cast<double>(now.done) * parts /
                                                    static_cast<double>(now.total));
    };
    unsigned const steps = share(is_terminal_ ? 1000 : 10);
    if (steps == shown_) return;
    shown_ = steps;
    if (!is_terminal_) {
      std::fprintf(stderr, "convert: %3u %%\n", steps * 10);
      return;
    }
    constexpr std::size_t width = 40;
    std::string bar(static_cast<std::size_t>(share(width)), '#');
    bar.resize(width, '.');
    std::fprintf(stderr, "\r[%s] %5.1f %%  %-48.48s", bar.c_str(), steps / 10.0,
                 std::string(now.tensor).c_str());
  }

  ~progress_line() {
    if (is_terminal_ && shown_ != none) std::fputc('\n', stderr);
  }

 private:
  static constexpr unsigned none = ~0u;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  unsigned shown_ = none;
};

}  // namespace

void add_convert(CLI::App& app, action& chosen) {
  struct convert_flags {
    std::filesystem::path input;
    std::filesystem::path output;
    checkpoint::convert_options options;
  };
  auto const flags = std::make_shared<convert_flags>();
  CLI::App* const command = app.add_subcommand(
      "convert",
      "Quantise a BF16 checkpoint: NVFP4 MLPs and head, FP8 projections, the rest as it is");
  command->add_option("input", flags->input, "Directory of the BF16 checkpoint")->required();
  command->add_option("output", flags->output, "Directory to write, which must not exist")
      ->required();
  command->add_option("--shard-bytes", flags->options.shard_bytes, "Bytes a file may have at most")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->capture_default_str();
  command->add_flag("--overwrite", flags->options.overwrite,
                    "Replace the output if it is a checkpoint directory");
  command->callback([flags, &chosen] {
    chosen = [flags] {
      checkpoint::conversion result;
      {
        progress_line line;
        flags->options.on_progress = [&line](checkpoint::convert_progress const& now) {
          line.show(now);
        };
        result = checkpoint::convert_checkpoint(flags->input, flags->output, flags->options);
        flags->options.on_progress = nullptr;  // it refers to the line
      }
      checkpoint::print_conversion(std::cout, result);
      return 0;
    };
  });
}

}  // namespace qwen38::cli

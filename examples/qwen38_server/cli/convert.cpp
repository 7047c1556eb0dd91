// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "cli/progress_line.hpp"
#include "cli/subcommands.hpp"

namespace qwen38::cli {
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
        progress_line line("convert");
        flags->options.on_progress = [&line](checkpoint::convert_progress const& now) {
          line.show(now.done, now.total, now.tensor);
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

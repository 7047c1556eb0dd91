// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "checkpoint/synthetic.hpp"
#include "cli/progress_line.hpp"
#include "cli/subcommands.hpp"
#include "text/byte_vocabulary.hpp"

namespace qwen38::cli {

void add_synth(CLI::App& app, action& chosen) {
  struct synth_flags {
    std::filesystem::path output;
    std::string preset = "27b";
    std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  };
  auto const flags = std::make_shared<synth_flags>();
  CLI::App* const command =
      app.add_subcommand("synth",
                         "Write a checkpoint of made-up weights, to measure speed and memory with; "
                         "--model synth:PRESET runs the same without writing");
  command->add_option("output", flags->output, "Directory to write, which must not exist")
      ->required();
  command->add_option("--preset", flags->preset, "Shape: 27b, or small and tiny for tests")
      ->check(CLI::IsMember({"27b", "small", "tiny"}))
      ->capture_default_str();
  command->add_option("--shard-bytes", flags->shard_bytes, "Bytes a file may have at most")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->capture_default_str();
  command->callback([flags, &chosen] {
    chosen = [flags] {
      checkpoint::synthetic_checkpoint const made(flags->preset);
      {
        progress_line line("synth");
        made.write(
            flags->output, text::byte_tokenizer_json(), flags->shard_bytes,
            [&line](std::uint64_t done, std::uint64_t total) { line.show(done, total, ""); });
      }
      std::cout << flags->output.string() << ": " << made.tensors().size() << " tensors, "
                << made.byte_count() << " bytes\n";
      return 0;
    };
  });
}

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/repository.hpp"
#include "checkpoint/synthetic.hpp"

namespace qwen38::cli {

/// What --model names: a checkpoint's directory, or `synth:PRESET`, made-up weights in memory
/// (checkpoint/synthetic.hpp) whose few JSON files are in a temporary directory as long as this
/// lives.
class model_source {
 public:
  /// With headers_only the tensors have no bytes.
  /// @throws qwen38::error (invalid_argument) for another preset, (io)
  explicit model_source(std::string const& model,
                        checkpoint::open_mode mode = checkpoint::open_mode::full);
  ~model_source();
  model_source(model_source const&) = delete;
  model_source& operator=(model_source const&) = delete;

  [[nodiscard]] bool is_synthetic() const noexcept { return synthetic_ != nullptr; }
  /// Where config.json and the like are.
  [[nodiscard]] std::filesystem::path const& directory() const noexcept { return directory_; }
  /// "synth:27b"; of a hub's cache "owner/name"; else the directory's last component.
  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  /// The tensors, for one thread; this must outlive them.
  [[nodiscard]] std::shared_ptr<checkpoint::repository> open() const;

 private:
  checkpoint::open_mode mode_;
  std::string name_;
  std::filesystem::path directory_;
  std::unique_ptr<checkpoint::synthetic_checkpoint> synthetic_;
};

}  // namespace qwen38::cli

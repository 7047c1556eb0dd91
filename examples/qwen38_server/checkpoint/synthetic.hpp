// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/repository.hpp"

namespace qwen38::checkpoint {

/// A checkpoint of made-up weights: names, shapes and classes of storage of a published one, as
/// ModelOpt writes them (without the vision tower), and values under which a forward pass stays
/// finite. For measurements of speed and memory, which do not depend on what a model has learnt.
///
/// The values are the same for everyone: each tensor is a piece of one of a few arrays of
/// pseudo-random numbers, chosen by the tensor's name. So a whole model takes the memory of its
/// largest tensors, about 4 GiB for 27b.
class synthetic_checkpoint {
 public:
  /// @param preset  "27b": Qwen3.8-27B; "small": 16 layers, 1024 wide, 0.3 GB; "tiny": 8 layers, 64
  ///                wide; both for tests
  /// @param mode    headers_only: the tensors have no bytes, and write() cannot be called
  /// @throws qwen38::error (invalid_argument) for another preset
  explicit synthetic_checkpoint(std::string_view preset, open_mode mode = open_mode::full);
  ~synthetic_checkpoint();
  synthetic_checkpoint(synthetic_checkpoint const&) = delete;
  synthetic_checkpoint& operator=(synthetic_checkpoint const&) = delete;

  /// In the order of the model; the bytes live as long as this.
  [[nodiscard]] std::vector<tensor_view> const& tensors() const noexcept { return tensors_; }

  /// Writes config.json, generation_config.json, hf_quant_config.json and tokenizer.json, whose
  /// tokens are the bytes and Qwen's control tokens, into a directory that exists.
  /// @throws qwen38::error (io)
  void write_documents(std::filesystem::path const& directory,
                       std::string const& tokenizer_json) const;

  /// The whole checkpoint, in shards of at most `shard_bytes` (one tensor at least), into a new
  /// directory. on_progress(done, total) is told of bytes.
  /// @throws qwen38::error: invalid_argument where the directory exists; io
  void write(std::filesystem::path const& directory, std::string const& tokenizer_json,
             std::uint64_t shard_bytes,
             std::function<void(std::uint64_t, std::uint64_t)> const& on_progress) const;

  [[nodiscard]] std::uint64_t byte_count() const noexcept;

 private:
  struct pools;
  struct plan;
  std::unique_ptr<pools> pools_;
  std::unique_ptr<nlohmann::json> config_;
  std::unique_ptr<nlohmann::json> quantization_;
  std::vector<tensor_view> tensors_;
};

}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/config.hpp"
#include "checkpoint/diagnostics.hpp"
#include "checkpoint/inventory.hpp"
#include "checkpoint/repository.hpp"
#include "checkpoint/safetensors.hpp"

namespace qwen38::checkpoint {

/// Everything that can be said about a checkpoint directory without running it.
struct inspection {
  std::filesystem::path directory;
  std::size_t files = 0;                        ///< safetensors files that could be read
  std::size_t tensors = 0;                      ///< in those files
  std::uint64_t bytes = 0;                      ///< of those tensors
  std::optional<model_config> config;           ///< empty if config.json is wrong
  std::optional<generation_config> generation;  ///< empty if generation_config.json is wrong
  std::optional<inventory> weights;             ///< empty without a config or without any tensor
  std::vector<group_bytes> ranks;  ///< of each rank, if the caller cuts the model over several
  std::string kv_cache_algo;       ///< declared in the JSON; the server keeps fp16 all the same
  std::vector<problem> problems;

  /// No error; warnings are allowed.
  [[nodiscard]] bool ok() const noexcept;
};

/// Looks at everything and goes on after each problem. Throws nothing but std::bad_alloc.
[[nodiscard]] inspection inspect_checkpoint(std::filesystem::path const& directory,
                                            open_mode mode = open_mode::full);

/// Refuses what inspect_checkpoint calls an error of the weights or of their declarations, before
/// anything is packed. Claims nothing.
/// @return bytes of the tensors that the model uses
/// @throws qwen38::error with the first sentence
std::uint64_t verify_weights(repository& tensors, model_config const& config);

/// Prints a table for people, or one JSON object.
/// @return 0, or 2 if the inspection holds an error
int print_inspection(std::ostream& out, inspection const& result, bool as_json);

}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/diagnostics.hpp"
#include "checkpoint/safetensors.hpp"

namespace qwen38::checkpoint {

/// The tensors of a checkpoint directory, and an account of which of them were used.
///
/// The directory holds either model.safetensors or model.safetensors.index.json and the shards that
/// it names. The index must agree with the shards: every tensor it names is in the shard it says,
/// every tensor of a shard is in the index, no tensor stands in two shards, and a shard is a plain
/// file name (no folder, no ".."; symbolic links are followed, as download caches use them).
///
/// One thread at a time; the tensors' bytes may be read by any number of threads.
class repository {
 public:
  /// @throws qwen38::error with the first thing that is wrong.
  explicit repository(std::filesystem::path const& directory, open_mode mode = open_mode::full);

  /// The same, but reports to `report`: a collecting one gets every broken shard and every
  /// contradiction of the index, and the repository then holds the tensors of the shards that could
  /// be read.
  repository(std::filesystem::path const& directory, open_mode mode, diagnostics& report);

  /// A directory that has only the JSON files: the tensors are in memory that outlives this, or,
  /// with headers_only, have no bytes.
  repository(std::filesystem::path const& directory, std::vector<tensor_view> const& tensors,
             open_mode mode = open_mode::full);

  [[nodiscard]] tensor_view const* find(std::string_view name) const noexcept;

  /// The tensor, now marked as used. Claiming twice is fine.
  /// @throws qwen38::error (corrupt_data) if there is none of that name.
  tensor_view const& claim(std::string_view name);

  /// Nobody reads these bytes of a tensor again soon: memory that holds them as a copy of a file is
  /// given back.
  void let_go(std::span<std::byte const> bytes) const noexcept;

  /// Makes every tensor unused again, for a check that goes before the use.
  void forget_claims() noexcept;

  /// Names that are neither claimed nor on the list of ignored names, sorted. A scale on that list
  /// counts only if a tensor of its own module is claimed.
  [[nodiscard]] std::vector<std::string> unused() const;

  /// @throws qwen38::error (unsupported) that counts the unused tensors and names the first few.
  void require_all_used() const;

  /// Every tensor, in the order of the shards' names and of their data.
  [[nodiscard]] std::vector<tensor_view const*> tensors() const;

  [[nodiscard]] std::filesystem::path const& directory() const noexcept { return directory_; }
  [[nodiscard]] open_mode mode() const noexcept { return mode_; }
  [[nodiscard]] std::size_t shard_count() const noexcept { return shards_.size(); }

 private:
  void open(diagnostics& report);
  struct entry {
    tensor_view const* tensor;
    std::size_t shard;
    bool claimed = false;
  };
  using shard_of_name = std::unordered_map<std::string, std::string>;

  void open_sharded(std::filesystem::path const& index, diagnostics& report);
  // `weight_map` is null where there is no index to agree with.
  void add_shard(std::string const& name, shard_of_name const* weight_map, diagnostics& report);
  void warn_of_unlisted_files(std::set<std::string> const& shards, diagnostics& report) const;
  void check_index(shard_of_name const& weight_map, diagnostics& report) const;

  std::filesystem::path directory_;
  open_mode mode_;
  std::vector<safetensors_file> shards_;
  std::vector<std::string> shard_names_;  // parallel to shards_
  std::vector<entry> entries_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys are the tensors' own names
};

/// What the names of the text model's tensors begin with, "model.language_model." or, in a
/// text-only export, "model."; lm_head and mtp carry no prefix.
[[nodiscard]] std::string text_prefix(repository const& tensors);

}  // namespace qwen38::checkpoint

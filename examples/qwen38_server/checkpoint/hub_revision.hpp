// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace qwen38::checkpoint {

/// Where a checkpoint was downloaded from.
struct hub_revision {
  std::string repository;  ///< "owner/name"; "" where the files do not say
  std::string commit;      ///< 40 hexadecimal digits
};

/// What huggingface_hub leaves beside the files that it downloads: in its cache the directory
/// itself,
///   models--OWNER--NAME/snapshots/COMMIT
/// and with local_dir a file for each one downloaded, whose first line is the commit,
///   .cache/huggingface/download/FILE.metadata
/// None where there is neither, or these files name several commits. It says what was downloaded,
/// not that nothing was changed since.
[[nodiscard]] std::optional<hub_revision> find_hub_revision(std::filesystem::path const& directory);

}  // namespace qwen38::checkpoint

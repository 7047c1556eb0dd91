// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace qwen38::text {

/// The bytes of a file. Throws io with the reason where it cannot be read.
[[nodiscard]] std::string read_text(std::filesystem::path const& path);

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace qwen38::checkpoint {

/// Parses JSON text that came with a checkpoint. Refused: text that is not JSON, nesting deeper
/// than 32 levels, a key that stands twice in one object (a JSON object would keep one of them
/// silently), and a document that is not an object.
/// @throws qwen38::error (corrupt_data) with a sentence that starts with `label`.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, std::string const& label);

/// The same for a file. Errors name the whole path.
/// @throws qwen38::error (not_found, io, corrupt_data)
[[nodiscard]] nlohmann::json read_json_object(std::filesystem::path const& path);

/// Writes a document as UTF-8, indented by one; what is no UTF-8 becomes U+FFFD.
/// @throws qwen38::error (io)
void write_json(std::filesystem::path const& path, nlohmann::json const& document);

}  // namespace qwen38::checkpoint

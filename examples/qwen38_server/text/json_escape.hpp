// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace qwen38::text {

/// Appends `text` as it stands inside a JSON string: quotes, backslashes and control characters
/// escaped, all else as it is. The text may be cut anywhere.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace qwen38::text

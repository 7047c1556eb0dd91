// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace qwen38::checkpoint {

/// A name out of a file, for a message: in quotes, control characters escaped, cut off after 160
/// bytes.
[[nodiscard]] std::string in_quotes(std::string_view name);

/// "a", "b", "c" and 7 more
[[nodiscard]] std::string first_few(std::span<std::string const> names, std::size_t count = 3);

}  // namespace qwen38::checkpoint

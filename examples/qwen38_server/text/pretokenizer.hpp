// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace qwen38::text {

/// The Split pattern of Qwen3.5, 3.6 and 3.8, the only one pretokenize() knows.
inline constexpr std::string_view split_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The leftmost matches of split_pattern, in order; joined they are `valid` (UTF-8) again. Linear
/// time. \s is White_Space; categories are utf8proc's.
[[nodiscard]] std::vector<std::string_view> pretokenize(std::string_view valid);

}  // namespace qwen38::text

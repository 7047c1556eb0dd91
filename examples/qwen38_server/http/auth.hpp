// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace qwen38::http {

/// Whether an Authorization header holds the key as a bearer token. The time taken depends on the
/// header's length and not on how much of the key it gets right. An empty key lets everybody in.
[[nodiscard]] bool is_authorised(std::string_view authorization, std::string_view key) noexcept;

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace qwen38::text {

/// SHA-256 (FIPS 180-4) of `bytes` in 64 lower-case hexadecimal digits, as sha256sum prints it.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace qwen38::text

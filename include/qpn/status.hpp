// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace qpn {

/// Why a call was refused or failed.
enum class status_code : std::uint8_t {
  ok = 0,
  invalid_shape,
  invalid_value,
  misaligned,
  unsupported_format,
  unsupported_arch,
  not_compiled_for_arch,
  workspace_too_small,
  launch_failed,
};

[[nodiscard]] constexpr char const* to_string(status_code code) noexcept {
  switch (code) {
    case status_code::ok: return "ok";
    case status_code::invalid_shape: return "invalid_shape";
    case status_code::invalid_value: return "invalid_value";
    case status_code::misaligned: return "misaligned";
    case status_code::unsupported_format: return "unsupported_format";
    case status_code::unsupported_arch: return "unsupported_arch";
    case status_code::not_compiled_for_arch: return "not_compiled_for_arch";
    case status_code::workspace_too_small: return "workspace_too_small";
    case status_code::launch_failed: return "launch_failed";
  }
  return "unknown status_code";
}

/// Result of every fallible call of the library: a code, a fixed sentence, and, where an element of
/// the input is to blame, its coordinates. Trivially copyable; never allocates; never throws.
struct [[nodiscard]] status {
  status_code code = status_code::ok;
  int cuda_error = 0;        ///< cudaError_t as int where code == launch_failed, else 0
  char const* what = "";     ///< static string: what, where, what was expected
  std::int64_t row = -1;     ///< offending row, or -1
  std::int64_t column = -1;  ///< offending column, or -1

  [[nodiscard]] constexpr bool ok() const noexcept { return code == status_code::ok; }
};

}  // namespace qpn

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qwen38::checkpoint {

/// Element types of the safetensors format that take whole bytes. (Its 4 and 6 bit ones are not
/// known here: ModelOpt stores e2m1 pairs as U8.)
enum class storage_dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
};

namespace detail {
struct dtype_row {
  std::string_view name;  // as in the file
  int bytes;
};
inline constexpr std::array<dtype_row, 16> dtype_rows = {{{"BOOL", 1},
                                                          {"U8", 1},
                                                          {"I8", 1},
                                                          {"F8_E4M3", 1},
                                                          {"F8_E5M2", 1},
                                                          {"F8_E8M0", 1},
                                                          {"U16", 2},
                                                          {"I16", 2},
                                                          {"F16", 2},
                                                          {"BF16", 2},
                                                          {"U32", 4},
                                                          {"I32", 4},
                                                          {"F32", 4},
                                                          {"U64", 8},
                                                          {"I64", 8},
                                                          {"F64", 8}}};
}  // namespace detail

/// The name a safetensors header uses, e.g. "F8_E4M3".
[[nodiscard]] constexpr std::string_view dtype_name(storage_dtype dtype) noexcept {
  return detail::dtype_rows[static_cast<std::size_t>(dtype)].name;
}

/// Bytes of one element.
[[nodiscard]] constexpr int dtype_bytes(storage_dtype dtype) noexcept {
  return detail::dtype_rows[static_cast<std::size_t>(dtype)].bytes;
}

[[nodiscard]] constexpr std::optional<storage_dtype> dtype_from_name(
    std::string_view name) noexcept {
  for (std::size_t i = 0; i < detail::dtype_rows.size(); ++i) {
    if (detail::dtype_rows[i].name == name) return static_cast<storage_dtype>(i);
  }
  return std::nullopt;
}

}  // namespace qwen38::checkpoint

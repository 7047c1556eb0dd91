// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "qpn/format.hpp"
#include "qpn/gemm_route.hpp"

// Which of the kernels that give the same result a call runs, where there are several: layout
// sm80_mma16. Host code without CUDA.
//
// Who decides, for each m: a row of the caller's table (gemm_problem::tuning), else one of the
// table that the library has of the device, else the rules (detail/gemm_rules.hpp). Up to
// gemm_max_m rows no choice changes a bit of y; beyond, choices that share k in another way do, as
// m does there. bench/gemm_tune measures them and writes such tables.

namespace qpn {

/// Rows of x up to which a row's bits depend neither on m nor on its place: those of the kernels
/// that read a weight from device memory once.
inline constexpr std::int64_t gemm_max_m = 96;

/// How a call runs. What a method does not have is 0.
struct gemm_choice {
  /// mt1, mt2 or mt4; on compute capability 9.0, with nvfp4 and fp8, also group or wide.
  gemm_method method = gemm_method::mt1;
  std::int16_t rows = 0;       ///< of x that a CTA takes: group 32, 64 or 96; wide 96 or 128
  std::int8_t groups = 0;      ///< group: warpgroups of a CTA, 1; of 64 rows also 2, of 96 also 3
  std::int8_t ranks = 0;       ///< wide: CTAs that share the k of a tile of y, 1 to 4
  std::int8_t tail_ranks = 0;  ///< wide: more of them, where the last wave lacks tiles; or 0
  /// mt1 and mt2 of nvfp4: registers of a thread, one of detail::sm80::free_registers, with whole
  /// strips of 32 weight rows for a CTA; 0: by the count of CTAs, and halves of few strips. Rows of
  /// x in bf16 leave no choice: any is passed by.
  std::int16_t registers = 0;
};

[[nodiscard]] constexpr bool operator==(gemm_choice a, gemm_choice b) noexcept {
  return a.method == b.method && a.rows == b.rows && a.groups == b.groups && a.ranks == b.ranks &&
         a.tail_ranks == b.tail_ranks && a.registers == b.registers;
}
[[nodiscard]] constexpr bool operator!=(gemm_choice a, gemm_choice b) noexcept {
  return !(a == b);
}

/// The choice for calls with first_m to last_m rows on weights [n, k] of one format, but for those
/// with 128 x 128 scales.
struct gemm_tuning_row {
  format_id format = format_id::nvfp4;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t first_m = 0;
  std::int64_t last_m = 0;
  gemm_choice choice;
};

[[nodiscard]] constexpr bool operator==(gemm_tuning_row const& a,
                                        gemm_tuning_row const& b) noexcept {
  return a.format == b.format && a.n == b.n && a.k == b.k && a.first_m == b.first_m &&
         a.last_m == b.last_m && a.choice == b.choice;
}

/// A table: rows that somebody else keeps, for as long as there are plans made with it. Of two rows
/// for the same call the first one counts.
struct gemm_tuning {
  gemm_tuning_row const* rows = nullptr;
  std::size_t count = 0;

  [[nodiscard]] constexpr gemm_tuning_row const* begin() const noexcept { return rows; }
  [[nodiscard]] constexpr gemm_tuning_row const* end() const noexcept { return rows + count; }
};

/// The same table, not one of equal rows.
[[nodiscard]] constexpr bool operator==(gemm_tuning a, gemm_tuning b) noexcept {
  return a.rows == b.rows && a.count == b.count;
}

/// The table of all rows of an array.
template <std::size_t Count>
[[nodiscard]] constexpr gemm_tuning tuning_of(gemm_tuning_row const (&rows)[Count]) noexcept {
  return {rows, Count};
}

}  // namespace qpn

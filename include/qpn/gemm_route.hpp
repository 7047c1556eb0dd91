// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "qpn/dtype.hpp"

// Which kernel a call of qpn::gemm runs, its name, and the census of launches. Host code without
// CUDA.
//
// A new kernel adds its name to one of the lists below: the table of names and the census follow.

namespace qpn {

/// The architecture folder that the kernel is of.
enum class gemm_arch : std::uint8_t { sm70, sm80, sm90 };

/// The elements that the kernel decodes; the two kinds of dense16 apart.
enum class gemm_operand : std::uint8_t { nvfp4, fp8, f16, bf16 };

/// How the kernel goes about it: mt* with so many row tiles of 8 rows of x in one pass, for each
/// row block of so many rows; group, by warpgroups, which multiply ordered x in one pass; wide, a
/// CTA to a tile of y; dense, dequantised panels and a GEMM of the caller; simt, without matrix
/// instructions.
enum class gemm_method : std::uint8_t { mt1, mt2, mt4, mt8, mt12, group, wide, dense, simt };

struct gemm_route {
  gemm_arch arch = gemm_arch::sm70;
  gemm_operand operand = gemm_operand::nvfp4;
  gemm_method method = gemm_method::mt1;
  bool emulated = false;  ///< the device lacks the kernel's matrix instruction
  bool bf16_x = false;    ///< x is bf16, not f16
};

namespace detail {

inline constexpr char const* gemm_arch_names[] = {"sm70", "sm80", "sm90"};
inline constexpr char const* gemm_operand_names[] = {"nvfp4", "fp8", "f16", "bf16"};
inline constexpr char const* gemm_method_names[] = {"mt1",   "mt2",  "mt4",   "mt8", "mt12",
                                                    "group", "wide", "dense", "simt"};

template <int Count>
[[nodiscard]] constexpr int count_of(char const* const (&)[Count]) noexcept {
  return Count;
}
inline constexpr int gemm_arch_count = count_of(gemm_arch_names);
inline constexpr int gemm_operand_count = count_of(gemm_operand_names);
inline constexpr int gemm_method_count = count_of(gemm_method_names);

}  // namespace detail

/// All routes, those that no kernel has included.
inline constexpr int gemm_route_count =
    detail::gemm_arch_count * detail::gemm_operand_count * detail::gemm_method_count * 4;

/// The place of a route among all, 0 to gemm_route_count - 1.
[[nodiscard]] constexpr int route_index(gemm_route route) noexcept {
  int const of_arch =
      static_cast<int>(route.arch) * detail::gemm_operand_count + static_cast<int>(route.operand);
  int const of_method = of_arch * detail::gemm_method_count + static_cast<int>(route.method);
  return 4 * of_method + (route.bf16_x ? 2 : 0) + (route.emulated ? 1 : 0);
}

/// The route at a place, the inverse of route_index.
[[nodiscard]] constexpr gemm_route route_at(int index) noexcept {
  int const of_arch = index / 4 / detail::gemm_method_count;
  return {static_cast<gemm_arch>(of_arch / detail::gemm_operand_count),
          static_cast<gemm_operand>(of_arch % detail::gemm_operand_count),
          static_cast<gemm_method>(index / 4 % detail::gemm_method_count), index % 2 != 0,
          index / 2 % 2 != 0};
}

namespace detail {

struct gemm_route_names {
  char text[gemm_route_count][40] = {};

  constexpr gemm_route_names() noexcept {
    for (int i = 0; i < gemm_route_count; ++i) {
      gemm_route const route = route_at(i);
      char* at = text[i];
      append(at, gemm_arch_names[static_cast<int>(route.arch)]);
      *at++ = '/';
      append(at, gemm_operand_names[static_cast<int>(route.operand)]);
      *at++ = '/';
      append(at, gemm_method_names[static_cast<int>(route.method)]);
      if (route.bf16_x) append(at, "/bf16");
      if (route.emulated) append(at, "/emulated");
    }
  }

 private:
  static constexpr void append(char*& at, char const* name) noexcept {
    while (*name != '\0') *at++ = *name++;
  }
};

inline constexpr gemm_route_names route_names;

}  // namespace detail

/// "sm70/nvfp4/mt2", "sm70/nvfp4/mt2/emulated", or, with rows of x in bf16, "sm90/nvfp4/mt2/bf16".
[[nodiscard]] constexpr char const* route_name(gemm_route route) noexcept {
  return detail::route_names.text[route_index(route)];
}

/// The operand whose codes are of a type: e2m1, e4m3, f16 or bf16.
[[nodiscard]] constexpr gemm_operand operand_of(dtype code_type) noexcept {
  return code_type == dtype::e2m1   ? gemm_operand::nvfp4
         : code_type == dtype::e4m3 ? gemm_operand::fp8
         : code_type == dtype::f16  ? gemm_operand::f16
                                    : gemm_operand::bf16;
}

/// The method with so many row tiles: 1, 2, 4, 8 or 12.
[[nodiscard]] constexpr gemm_method narrow_method(int row_tiles) noexcept {
  return row_tiles == 12  ? gemm_method::mt12
         : row_tiles == 8 ? gemm_method::mt8
         : row_tiles == 4 ? gemm_method::mt4
         : row_tiles == 2 ? gemm_method::mt2
                          : gemm_method::mt1;
}

/// Counts launches by route. Not synchronised: one census for each host thread that launches.
struct gemm_census {
  std::uint64_t launched[gemm_route_count] = {};
  /// Those on another route than the plan's, for want of device code in the program.
  std::uint64_t fallbacks = 0;

  constexpr void count(gemm_route route) noexcept { ++launched[route_index(route)]; }
  /// A launch by `taken` of a call whose plan says `planned`.
  constexpr void count(gemm_route taken, gemm_route planned) noexcept {
    count(taken);
    if (route_index(taken) != route_index(planned)) ++fallbacks;
  }
  [[nodiscard]] constexpr std::uint64_t launches(gemm_route route) const noexcept {
    return launched[route_index(route)];
  }
};

}  // namespace qpn

// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/shared_carveout.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "qpn/arch/sm80/gemm_policy.hpp"
#include "qpn/arch/sm80/gemm_sums.hpp"
#include "qpn/detail/slice_split.hpp"

namespace {

using qpn::detail::max_slices;
using qpn::detail::reserved_shared_bytes;
using qpn::detail::shared_carveout;

constexpr int hopper = 228 * 1024;   // of a multiprocessor
constexpr int geforce = 100 * 1024;  // of compute capability 12.0

/// Of the sizes that a Hopper multiprocessor has, the one that the driver takes.
int size_for(int carveout) {
  for (int const kib : {0, 8, 16, 32, 64, 100, 132, 164, 196, 228}) {
    if (kib * 1024 * 100 >= carveout * hopper) return kib * 1024;
  }
  return hopper;
}

TEST(shared_carveout, is_one_for_all_kernels_of_little_shared_memory) {
  for (int const bytes : {0, 1, 4608, 42 * 1024}) {
    EXPECT_EQ(shared_carveout(1, bytes, hopper), 28) << bytes;
    EXPECT_EQ(shared_carveout(1, bytes, geforce), 64) << bytes;
  }
  EXPECT_EQ(size_for(28), 64 * 1024);
}

TEST(shared_carveout, has_room_for_the_ctas) {
  for (std::int64_t ctas = 1; ctas <= 2; ++ctas) {
    for (int bytes = 0; bytes <= 113 * 1024; bytes += 512) {
      std::int64_t const needed = ctas * (bytes + reserved_shared_bytes);
      if (needed > hopper) continue;
      // A hair less where percent round down past a size; the driver gives a CTA what it needs.
      EXPECT_GE(size_for(shared_carveout(ctas, bytes, hopper)) + hopper / 100, needed)
          << ctas << " CTAs of " << bytes;
    }
  }
}

TEST(shared_carveout, is_all_at_most) {
  EXPECT_EQ(shared_carveout(2, 227 * 1024, hopper), 100);
  EXPECT_EQ(shared_carveout((std::numeric_limits<std::int32_t>::max)(), 227 * 1024, hopper), 100);
  EXPECT_EQ(shared_carveout(1, 0, 48 * 1024), 100);  // less than the least
  EXPECT_EQ(shared_carveout(1, 0, 0), 100);          // not known
}

template <int RowTiles>
void expect_gemm_fits(int registers) {
  for (int slices = 4; slices <= max_slices; ++slices) {
    int const ctas = qpn::detail::sm80::resident_ctas(registers, slices);
    EXPECT_EQ(
        shared_carveout(ctas, qpn::detail::sm80::shared_layout<RowTiles>::bytes(slices), hopper),
        28)
        << RowTiles << " row tiles, " << registers << " registers, " << slices << " slices";
  }
}

TEST(shared_carveout, is_the_same_for_every_gemm) {
  for (int const registers : {56, 64, 80, 128}) expect_gemm_fits<1>(registers);
  for (int const registers : {80, 96, 112, 128}) expect_gemm_fits<2>(registers);
  expect_gemm_fits<4>(128);
}

}  // namespace

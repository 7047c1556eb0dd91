// SPDX-License-Identifier: Apache-2.0
#include "access_pattern.hpp"

#include <gtest/gtest.h>

namespace qpn::bench::v100 {
namespace {

template <class Address>
warp_access access_of(int bytes, Address address) {
  warp_access access;
  access.bytes = bytes;
  for (int lane = 0; lane < 32; ++lane) {
    access.address[static_cast<std::size_t>(lane)] = address(static_cast<std::uint64_t>(lane));
  }
  return access;
}

TEST(access_pattern, consecutive_lanes_take_one_wavefront_for_128_bytes) {
  for (auto const& [bytes, wavefronts] : {std::pair{2, 1}, {4, 1}, {8, 2}, {16, 4}}) {
    auto const width = static_cast<std::uint64_t>(bytes);
    access_cost const cost = global_cost(access_of(bytes, [=](auto l) { return l * width; }));
    EXPECT_EQ(cost.wavefronts, wavefronts) << bytes << " bytes a lane";
    EXPECT_EQ(cost.sectors, bytes) << bytes << " bytes a lane";
  }
}

TEST(access_pattern, every_line_of_a_phase_is_a_wavefront) {
  EXPECT_EQ(global_cost(access_of(4, [](auto l) { return 128 * l; })).wavefronts, 32);
  EXPECT_EQ(global_cost(access_of(4, [](auto l) { return 64 + 4 * l; })).wavefronts, 2);
  // Across a line's end: an element counts in both.
  EXPECT_EQ(global_cost(access_of(4, [](auto) { return 126u; })).wavefronts, 2);
}

TEST(access_pattern, lanes_that_are_off_cost_nothing) {
  access_cost const cost = global_cost(warp_access{});
  EXPECT_EQ(cost.wavefronts, 0);
  EXPECT_EQ(cost.sectors, 0);
  EXPECT_EQ(shared_cost(warp_access{}).wavefronts, 0);
  auto const first_half = [](auto l) { return l < 16 ? 16 * l : warp_access::off; };
  EXPECT_EQ(global_cost(access_of(16, first_half)).wavefronts, 2);
}

TEST(access_pattern, eight_scattered_rows_cost_what_was_counted_on_a_gpu) {
  // The predecessor's load of x: published counts are 16 wavefronts at m = 8, 8 at m = 4, and 4
  // where x is packed.
  auto const row_of = [](auto l) { return (l & 3) + 4 * (l >> 4); };
  auto const scattered = [&](std::uint64_t m) {
    return access_of(16,
                     [=](auto l) { return row_of(l) < m ? row_of(l) * 10240 : warp_access::off; });
  };
  EXPECT_EQ(global_cost(scattered(8)).wavefronts, 16);
  EXPECT_EQ(global_cost(scattered(4)).wavefronts, 8);
  EXPECT_EQ(global_cost(scattered(1)).wavefronts, 2);
  EXPECT_EQ(global_cost(scattered(8)).sectors, 8);
  EXPECT_EQ(global_cost(access_of(16, [&](auto l) { return row_of(l) * 16; })).wavefronts, 4);
}

TEST(access_pattern, banks_conflict_where_their_words_differ) {
  EXPECT_EQ(shared_cost(access_of(4, [](auto l) { return 4 * l; })).conflicts, 0);
  EXPECT_EQ(shared_cost(access_of(4, [](auto) { return 64u; })).wavefronts, 1);  // broadcast
  access_cost const two_way = shared_cost(access_of(4, [](auto l) { return 8 * l; }));
  EXPECT_EQ(two_way.wavefronts, 2);
  EXPECT_EQ(two_way.conflicts, 1);
  access_cost const all = shared_cost(access_of(4, [](auto l) { return 128 * l; }));
  EXPECT_EQ(all.wavefronts, 32);
  EXPECT_EQ(all.conflicts, 31);
}

TEST(access_pattern, a_chunk_of_padding_spreads_rows_over_the_banks) {
  // A quarter-warp reads 16 bytes of 8 rows: rows of 128 bytes share their banks.
  auto const rows = [](std::uint64_t pitch) {
    return access_of(16, [=](auto l) { return l % 8 * pitch; });
  };
  EXPECT_EQ(shared_cost(rows(144)).wavefronts, 4);
  EXPECT_EQ(shared_cost(rows(144)).conflicts, 0);
  EXPECT_EQ(shared_cost(rows(128)).wavefronts, 32);
  EXPECT_EQ(shared_cost(rows(128)).conflicts, 28);
}

}  // namespace
}  // namespace qpn::bench::v100

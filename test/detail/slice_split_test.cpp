// SPDX-License-Identifier: Apache-2.0
#include "qpn/detail/slice_split.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace {

using qpn::detail::choose_slices;
using qpn::detail::max_slices;
using qpn::detail::slice_split;

TEST(slice_split, slices_cover_every_batch_once_and_differ_by_one_at_most) {
  for (std::int32_t batches = 1; batches <= 70; ++batches) {
    for (std::int32_t slices = 1; slices <= max_slices && slices <= batches; ++slices) {
      slice_split const split = slice_split::of(batches, slices);
      ASSERT_EQ(split.first(0), 0);
      ASSERT_EQ(split.first(slices), batches);
      for (std::int32_t s = 0; s < slices; ++s) {
        std::int32_t const count = split.first(s + 1) - split.first(s);
        ASSERT_GE(count, batches / slices) << batches << " batches, slice " << s;
        ASSERT_LE(count, (batches - 1) / slices + 1) << batches << " batches, slice " << s;
      }
    }
  }
  constexpr std::int32_t most = (std::numeric_limits<std::int32_t>::max)();
  EXPECT_EQ(slice_split::of(most, max_slices).first(max_slices), most);
}

TEST(slice_split, fewer_strips_have_more_slices) {
  EXPECT_EQ(choose_slices(1088, 40, 132), 4);  // gate and up of the whole model
  EXPECT_EQ(choose_slices(265, 40, 132), 4);
  EXPECT_EQ(choose_slices(264, 40, 132), 8);
  EXPECT_EQ(choose_slices(160, 136, 132), 8);  // down
  EXPECT_EQ(choose_slices(133, 40, 132), 8);
  EXPECT_EQ(choose_slices(1, 40, 132), 8);
  EXPECT_EQ(choose_slices(1088, 3, 132), 3);  // a batch for each
}

TEST(slice_split, there_are_never_more_slices_than_batches_or_warps) {
  for (std::int64_t strips : {1, 5, 132, 133, 400, 1500, 100000}) {
    for (std::int64_t batches : {1, 2, 5, 9, 11, 17, 40, 100000}) {
      for (std::int32_t sm_count : {1, 7, 108, 132, 1024}) {
        std::int32_t const slices = choose_slices(strips, batches, sm_count);
        ASSERT_GE(slices, 1);
        ASSERT_LE(slices, max_slices);
        ASSERT_LE(slices, batches);
      }
    }
  }
}

}  // namespace

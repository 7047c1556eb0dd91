// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <qpn/format.hpp>

namespace {

/// The traits contract, checked for each format when it compiles.
template <class Format>
constexpr bool meets_contract() {
  return qpn::visit_format<bool>(Format::id, false, [](auto format) {
    using Visited = decltype(format);
    return Visited::id == Format::id && Visited::code_bits == Format::code_bits &&
           Visited::group_k == Format::group_k;
  });
}

static_assert(meets_contract<qpn::nvfp4>() && meets_contract<qpn::fp8>() &&
              meets_contract<qpn::dense16>());

}  // namespace

TEST(format, ids_and_names_are_stable) {
  EXPECT_EQ(static_cast<int>(qpn::nvfp4::id), 1);
  EXPECT_EQ(static_cast<int>(qpn::fp8::id), 2);
  EXPECT_EQ(static_cast<int>(qpn::dense16::id), 3);
  EXPECT_STREQ(qpn::to_string(qpn::format_id::nvfp4), "nvfp4");
  EXPECT_STREQ(qpn::to_string(qpn::format_id::fp8), "fp8");
  EXPECT_STREQ(qpn::to_string(qpn::format_id::dense16), "dense16");
  EXPECT_STREQ(qpn::to_string(qpn::scale_mode::channel), "channel");
  EXPECT_STREQ(qpn::to_string(qpn::scale_mode::block), "block");
}

TEST(format, an_unknown_id_is_visited_by_nobody) {
  EXPECT_STREQ(qpn::to_string(static_cast<qpn::format_id>(0)), "unknown format");
  EXPECT_EQ(qpn::visit_format<int>(static_cast<qpn::format_id>(4), -1, [](auto) { return 1; }), -1);
}

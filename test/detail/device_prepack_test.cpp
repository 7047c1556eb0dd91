// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <qpn/detail/device_prepack.hpp>
#include <qpn/prepack.hpp>
#include <qpn/prepack_report.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/aligned_bytes.hpp"
#include "support/devices.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/serial_lane.hpp"
#include "support/weight_pieces.hpp"

// The programs of prepack.cuh, thread by thread on the host.

namespace {

using namespace qpn::detail;
using qpn::dtype;
using qpn::format_id;
using qpn::packed_layout;
using qpn::packed_weight;
using qpn::prepack_report;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;
using qpn::test::aligned_bytes;
using qpn::test::all_weight_kinds;
using qpn::test::published_part;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::store_counts;
using qpn::test::weight_kind;
using qpn::test::weight_piece;

static_assert(std::is_trivially_copyable_v<prepack_report>);
static_assert(qpn::to_status(prepack_report{}, packed_layout{}).ok());

/// prepack_rows of prepack.cuh.
status prepack_serially(prepack_params const& p, bool backwards, store_counts* stores) {
  return qpn::visit_format<status>(p.layout.format, {}, [&](auto format) -> status {
    using Format = decltype(format);
    status const checked = check_prepack<Format>(p);
    if (!checked.ok()) return checked;
    qpn::test::run_serially(units_of_rows<Format>(p.layout, p.first_row, p.rows.n), word_threads,
                            backwards, stores,
                            [&](auto& lane) { prepack_program<Format>(lane, p); });
    return {};
  });
}

status unpack_serially(unpack_params const& p, bool backwards) {
  return qpn::visit_format<status>(p.weight.layout.format, {}, [&](auto format) -> status {
    using Format = decltype(format);
    status const checked = check_unpack<Format>(p);
    if (!checked.ok()) return checked;
    qpn::test::run_serially(units_of_rows<Format>(p.weight.layout, p.first_row, p.rows.n),
                            word_threads, backwards, nullptr,
                            [&](auto& lane) { unpack_program<Format>(lane, p); });
    return {};
  });
}

published_weight random_weight(weight_kind kind, random_source& random) {
  return published_weight(kind, qpn::test::random_part_rows(kind.scale, random),
                          qpn::test::random_reduction_length(kind.format, random), random);
}

void expect_same_status(status const& found, status const& expected) {
  EXPECT_EQ(found.code, expected.code);
  EXPECT_EQ(found.row, expected.row);
  EXPECT_EQ(found.column, expected.column);
  EXPECT_EQ(std::string(found.what), expected.what);
}

/// A weight of 67 rows in one part, packed by the host.
struct packed_fixture {
  explicit packed_fixture(weight_kind kind)
      : random(7),
        weight(kind, {67}, 48, random),
        layout(qpn::test::volta_layout_of(weight)),
        bytes(static_cast<std::size_t>(layout.total_bytes)) {
    std::vector<qpn::weight_part> const parts = weight.views();
    EXPECT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), bytes.data()).ok());
  }

  random_source random;
  published_weight weight;
  packed_layout layout;
  aligned_bytes bytes;
  prepack_report report;
};

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};

}  // namespace

TEST(device_prepack, pieces_in_any_order_write_the_bytes_of_the_host_and_each_of_them_once) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight = random_weight(kind, random);
      packed_layout const layout = qpn::test::gpu_layout_of(weight, seed);
      SCOPED_TRACE(testing::Message() << kind << ", n " << layout.n << ", k " << layout.k
                                      << ", seed " << random.seed());
      std::vector<std::byte> host(static_cast<std::size_t>(layout.total_bytes), std::byte{0xab});
      std::vector<qpn::weight_part> const parts = weight.views();
      ASSERT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), host.data()).ok());

      aligned_bytes device(static_cast<std::size_t>(layout.total_bytes));
      store_counts stores{device.data(), std::vector<int>(device.size())};
      prepack_report report;
      for (weight_piece const& piece : qpn::test::cut(weight, random)) {
        bool const backwards = random.integer(0, 1) == 1;
        status const packed = prepack_serially(
            {layout, piece.rows, piece.first_row, device.data(), &report}, backwards, &stores);
        ASSERT_TRUE(packed.ok()) << packed.what << ", row " << packed.row;
      }
      EXPECT_TRUE(qpn::to_status(report, layout).ok());
      for (std::size_t i = 0; i < host.size(); ++i) {
        ASSERT_EQ(std::to_integer<int>(device.data()[i]), std::to_integer<int>(host[i])) << i;
        ASSERT_EQ(stores.counts[i], 1) << i;
      }
    }
  }
}

TEST(device_prepack, a_channel_weight_takes_a_part_with_one_scale_for_all_rows) {
  packed_fixture fixture({format_id::fp8, scale_mode::channel, dtype::f16});
  qpn::weight_part rows = fixture.weight.views().front();
  rows.channel_scales = nullptr;
  rows.global_scale = 0.5f;
  ASSERT_TRUE(prepack_serially({fixture.layout, rows, 0, fixture.bytes.data(), &fixture.report},
                               false, nullptr)
                  .ok());
  for (std::int64_t row = 0; row < 128; ++row) {
    float scale = -1.0f;
    std::memcpy(&scale, fixture.bytes.data() + fixture.layout.scales_offset + 4 * row, 4);
    EXPECT_EQ(scale, row < 67 ? 0.5f : 0.0f) << row;
  }
}

TEST(device_prepack, the_report_is_the_status_of_the_host) {
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight = random_weight(kind, random);
      qpn::test::spoil(weight, random);
      packed_layout const layout = qpn::test::gpu_layout_of(weight, seed);
      SCOPED_TRACE(testing::Message() << kind << ", n " << layout.n << ", k " << layout.k
                                      << ", seed " << random.seed());
      aligned_bytes bytes(static_cast<std::size_t>(layout.total_bytes));
      std::vector<qpn::weight_part> const parts = weight.views();
      status const host = qpn::prepack(layout, parts.data(), parts.size(), bytes.data());
      ASSERT_FALSE(host.ok());
      prepack_report report;
      for (weight_piece const& piece : qpn::test::cut(weight, random)) {
        ASSERT_TRUE(prepack_serially({layout, piece.rows, piece.first_row, bytes.data(), &report},
                                     random.integer(0, 1) == 1, nullptr)
                        .ok());
      }
      expect_same_status(qpn::to_status(report, layout), host);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 280);
}

TEST(device_prepack, the_report_has_room_for_the_last_place_of_the_largest_weights) {
  for (auto const& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{64, std::int64_t{64} * 0x7fffffff},
        {std::int64_t{64} * 0x7fffffff, 64}}) {
    packed_layout layout;
    ASSERT_TRUE(qpn::make_packed_layout(format_id::nvfp4, scale_mode::tensor, n, k, dtype::f16,
                                        qpn::test::volta_v100(), layout)
                    .ok());
    std::int64_t const last = k / 16 - 1;
    prepack_report const report{
        defect_key(layout, n - 1, block_scale_place(layout, last), weight_defect::nan_block_scale)};
    status const found = qpn::to_status(report, layout);
    EXPECT_EQ(found.row, n - 1);
    EXPECT_EQ(found.column, last);
    prepack_report const scale{
        defect_key(layout, n - 1, scale_place(layout), weight_defect::infinite_scale)};
    expect_same_status(qpn::to_status(scale, layout),
                       defect_status(weight_defect::infinite_scale, n - 1, -1));
  }
}

TEST(device_prepack, unpacked_pieces_are_what_the_host_unpacks) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight = random_weight(kind, random);
      packed_layout const layout = qpn::test::gpu_layout_of(weight, seed);
      SCOPED_TRACE(testing::Message() << kind << ", n " << layout.n << ", k " << layout.k
                                      << ", seed " << random.seed());
      aligned_bytes bytes(static_cast<std::size_t>(layout.total_bytes));
      std::vector<qpn::weight_part> const parts = weight.views();
      ASSERT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), bytes.data()).ok());
      packed_weight const packed{layout, bytes.data()};

      std::deque<published_part> host = qpn::test::blank_parts(weight.parts(), -1.0f);
      std::vector<qpn::unpacked_part> const views = qpn::test::unpacked_views(host);
      ASSERT_TRUE(qpn::unpack(packed, views.data(), views.size()).ok());

      std::deque<published_part> device = qpn::test::blank_parts(weight.parts(), -1.0f);
      prepack_report report;
      for (weight_piece const& piece : qpn::test::cut(weight, random)) {
        published_part& to = device[piece.part];
        std::int64_t const first = piece.first_of_part;
        qpn::unpacked_part rows{piece.rows.n, to.codes.data() + first * published_row_bytes(layout),
                                to.block_scales.data() + first * block_scale_count(layout),
                                &to.global_scale, nullptr};
        if (!to.channel_scales.empty()) rows.channel_scales = to.channel_scales.data() + first;
        if (!to.scale_blocks.empty()) {
          rows.scale_blocks =
              to.scale_blocks.data() + first / 128 * qpn::detail::scale_columns(layout);
        }
        status const unpacked =
            unpack_serially({packed, rows, piece.first_row, &report}, random.integer(0, 1) == 1);
        ASSERT_TRUE(unpacked.ok()) << unpacked.what;
      }
      EXPECT_TRUE(qpn::to_status(report, layout).ok());
      qpn::test::expect_same_parts(device, host);
    }
  }
}

TEST(device_prepack, unpack_skips_what_is_not_asked_for) {
  for (weight_kind const kind : all_weight_kinds) {
    packed_fixture fixture(kind);
    qpn::unpacked_part const nothing{67, nullptr, nullptr, nullptr, nullptr};
    EXPECT_TRUE(unpack_serially(
                    {{fixture.layout, fixture.bytes.data()}, nothing, 0, &fixture.report}, false)
                    .ok());
    EXPECT_TRUE(qpn::to_status(fixture.report, fixture.layout).ok());
  }
}

TEST(device_prepack, unpacking_rows_of_several_parts_is_reported_as_the_host_refuses_it) {
  random_source random(9);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {64, 32, 5}, 16,
                          random);
  packed_layout const layout = qpn::test::volta_layout_of(weight);
  aligned_bytes bytes(static_cast<std::size_t>(layout.total_bytes));
  std::vector<qpn::weight_part> const parts = weight.views();
  ASSERT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), bytes.data()).ok());
  packed_weight const packed{layout, bytes.data()};
  qpn::unpacked_part const whole{101, nullptr, nullptr, nullptr, nullptr};
  for (bool const backwards : {false, true}) {
    prepack_report report;
    ASSERT_TRUE(unpack_serially({packed, whole, 0, &report}, backwards).ok());
    expect_same_status(qpn::to_status(report, layout), qpn::unpack(packed, &whole, 1));
    EXPECT_EQ(qpn::to_status(report, layout).row, 64);
  }
}

TEST(device_prepack, calls_that_cannot_be_launched_are_refused) {
  packed_fixture fixture(nvfp4_tensor);
  prepack_params const good{fixture.layout, fixture.weight.views().front(), 0, fixture.bytes.data(),
                            &fixture.report};
  auto const code = [&](auto change) {
    prepack_params p = good;
    change(p);
    return check_prepack<qpn::nvfp4>(p).code;
  };
  EXPECT_EQ(code([](prepack_params&) {}), status_code::ok);
  EXPECT_EQ(check_prepack<qpn::fp8>(good).code, status_code::unsupported_format);
  EXPECT_EQ(code([&](prepack_params& p) { p.layout = fixture.weight.layout(); }),
            status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.layout.total_bytes += 128; }),
            status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.rows.codes = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.rows.block_scales = nullptr; }),
            status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.out = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.report = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(code([](prepack_params& p) { p.out += 64; }), status_code::misaligned);
  for (std::int64_t const rows : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{68},
                                  (std::numeric_limits<std::int64_t>::max)()}) {
    EXPECT_EQ(code([rows](prepack_params& p) { p.rows.n = rows; }), status_code::invalid_shape);
  }
  EXPECT_EQ(code([](prepack_params& p) { p.first_row = -1; }), status_code::invalid_shape);
  EXPECT_EQ(code([](prepack_params& p) { p.rows.n = 33; }), status_code::invalid_shape)
      << "a border inside a tile";
  EXPECT_EQ(code([](prepack_params& p) { p.rows.n = 32; }), status_code::ok);

  unpack_params const back{{fixture.layout, fixture.bytes.data()},
                           {67, nullptr, nullptr, nullptr, nullptr},
                           0,
                           &fixture.report};
  auto const unpack_code = [&](auto change) {
    unpack_params p = back;
    change(p);
    return check_unpack<qpn::nvfp4>(p).code;
  };
  EXPECT_EQ(unpack_code([](unpack_params&) {}), status_code::ok);
  EXPECT_EQ(check_unpack<qpn::dense16>(back).code, status_code::unsupported_format);
  EXPECT_EQ(unpack_code([](unpack_params& p) { p.weight.data = nullptr; }),
            status_code::invalid_value);
  EXPECT_EQ(unpack_code([](unpack_params& p) { p.report = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(unpack_code([](unpack_params& p) { p.weight.data += 4; }), status_code::misaligned);
  EXPECT_EQ(unpack_code([](unpack_params& p) { p.first_row = 1; }), status_code::invalid_shape);
}

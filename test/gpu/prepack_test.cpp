// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <string>
#include <vector>

#include "gpu/prepack_launch.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/weight_pieces.hpp"

// prepack.cuh, dequantize.cuh and device_info.cuh on a GPU; the same programs run thread by thread
// in test/detail.

namespace {

using qpn::dtype;
using qpn::packed_layout;
using qpn::prepack_report;
using qpn::status;
using qpn::status_code;
using qpn::test::all_weight_kinds;
using qpn::test::published_part;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::weight_kind;

published_weight random_weight(weight_kind kind, random_source& random) {
  return published_weight(kind, qpn::test::random_part_rows(kind.scale, random),
                          qpn::test::random_reduction_length(kind.format, random), random);
}

std::vector<qpn::test::gpu_piece> random_pieces(published_weight const& weight,
                                                random_source& random) {
  std::vector<qpn::test::gpu_piece> pieces;
  for (qpn::test::weight_piece const& piece : qpn::test::cut(weight, random)) {
    pieces.push_back({piece.rows, piece.first_row});
  }
  return pieces;
}

/// Packed by the host for Volta.
std::vector<std::byte> pack(published_weight const& weight, status& packed) {
  packed_layout const layout = qpn::test::volta_layout_of(weight);
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.total_bytes), std::byte{0xcd});
  std::vector<qpn::weight_part> const parts = weight.views();
  packed = qpn::prepack(layout, parts.data(), parts.size(), bytes.data());
  return bytes;
}

}  // namespace

TEST(gpu_prepack, pieces_in_any_order_are_the_bytes_of_the_host) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight = random_weight(kind, random);
      packed_layout const layout = qpn::test::volta_layout_of(weight);
      SCOPED_TRACE(testing::Message() << kind << ", n " << layout.n << ", k " << layout.k
                                      << ", seed " << random.seed());
      status host;
      std::vector<std::byte> const expected = pack(weight, host);
      ASSERT_TRUE(host.ok()) << host.what;
      std::vector<qpn::test::gpu_piece> const pieces = random_pieces(weight, random);
      for (bool const as_graph : {false, true}) {
        std::vector<std::byte> found(expected.size());
        prepack_report report;
        status const packed = qpn::test::prepack_on_gpu(layout, pieces.data(), pieces.size(),
                                                        as_graph, found.data(), report);
        ASSERT_TRUE(packed.ok()) << packed.what;
        EXPECT_TRUE(qpn::to_status(report, layout).ok());
        EXPECT_TRUE(found == expected);
      }
    }
  }
}

TEST(gpu_prepack, the_report_is_the_status_of_the_host) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight = random_weight(kind, random);
      qpn::test::spoil(weight, random);
      packed_layout const layout = qpn::test::volta_layout_of(weight);
      SCOPED_TRACE(testing::Message() << kind << ", n " << layout.n << ", k " << layout.k
                                      << ", seed " << random.seed());
      status host;
      std::vector<std::byte> bytes = pack(weight, host);
      ASSERT_FALSE(host.ok());
      std::vector<qpn::test::gpu_piece> const pieces = random_pieces(weight, random);
      prepack_report report;
      status const packed = qpn::test::prepack_on_gpu(layout, pieces.data(), pieces.size(), false,
                                                      bytes.data(), report);
      ASSERT_TRUE(packed.ok()) << packed.what;
      status const found = qpn::to_status(report, layout);
      EXPECT_EQ(found.code, host.code);
      EXPECT_EQ(found.row, host.row);
      EXPECT_EQ(found.column, host.column);
      EXPECT_EQ(std::string(found.what), host.what);
    }
  }
}

TEST(gpu_prepack, unpacked_parts_are_what_the_host_unpacks) {
  random_source random(3);
  for (weight_kind const kind : all_weight_kinds) {
    published_weight weight = random_weight(kind, random);
    packed_layout const layout = qpn::test::volta_layout_of(weight);
    SCOPED_TRACE(testing::Message()
                 << kind << ", n " << layout.n << ", k " << layout.k << ", seed " << random.seed());
    status host;
    std::vector<std::byte> const bytes = pack(weight, host);
    ASSERT_TRUE(host.ok()) << host.what;
    std::deque<published_part> expected = weight.parts();
    std::vector<qpn::unpacked_part> const views = qpn::test::unpacked_views(expected);
    ASSERT_TRUE(qpn::unpack({layout, bytes.data()}, views.data(), views.size()).ok());
    // What the layout has no use for stays as it was on both sides.
    std::deque<published_part> found = qpn::test::blank_parts(weight.parts(), -1.0f);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i].global_scale = weight.parts()[i].global_scale;
    }
    std::int64_t row = 0;
    for (qpn::unpacked_part const& part : qpn::test::unpacked_views(found)) {
      prepack_report report;
      status const unpacked = qpn::test::unpack_on_gpu({layout, bytes.data()}, row, part, report);
      ASSERT_TRUE(unpacked.ok()) << unpacked.what;
      EXPECT_TRUE(qpn::to_status(report, layout).ok());
      row += part.n;
    }
    qpn::test::expect_same_parts(found, expected);
  }
}

TEST(gpu_prepack, dequantized_rows_are_the_reference_rounded_once) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight(kind, {random.integer(1, 200)},
                              qpn::test::random_reduction_length(kind.format, random), random);
      if (kind.scale == qpn::scale_mode::tensor) weight.parts().front().global_scale = 300.0f;
      packed_layout const layout = qpn::test::volta_layout_of(weight);
      status host;
      std::vector<std::byte> const bytes = pack(weight, host);
      ASSERT_TRUE(host.ok()) << host.what;
      qpn::weight_part const part = weight.views().front();
      qpn::weight_part unscaled = part;
      unscaled.global_scale = 1.0f;
      unscaled.channel_scales = nullptr;
      unscaled.scale_blocks = nullptr;
      std::int64_t const first = random.integer(0, layout.n - 1);
      std::int64_t const rows = random.integer(1, layout.n - first);
      for (std::int64_t const ldo : {layout.k, (layout.k + 7) / 8 * 8}) {
        SCOPED_TRACE(testing::Message()
                     << kind << ", n " << layout.n << ", k " << layout.k << ", rows " << first
                     << " + " << rows << ", ldo " << ldo << ", seed " << random.seed());
        auto const count = static_cast<std::size_t>(rows * ldo);
        std::vector<std::uint16_t> halves(count, 0xcdcd);
        std::vector<float> floats(count, -77.0f);
        status done = qpn::test::dequantize_on_gpu({layout, bytes.data()}, first, rows,
                                                   halves.data(), dtype::f16, ldo);
        ASSERT_TRUE(done.ok()) << done.what;
        done = qpn::test::dequantize_on_gpu({layout, bytes.data()}, first, rows, floats.data(),
                                            dtype::f32, ldo);
        ASSERT_TRUE(done.ok()) << done.what;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t k = 0; k < ldo; ++k) {
            auto const at = static_cast<std::size_t>(i * ldo + k);
            if (k >= layout.k) {
              ASSERT_EQ(halves[at], 0xcdcd) << "row " << i << ", column " << k;
              ASSERT_EQ(floats[at], -77.0f) << "row " << i << ", column " << k;
              continue;
            }
            std::int64_t const column =
                layout.scale == qpn::scale_mode::block ? k / qpn::scale_block : 0;
            float const scale = layout.scale == qpn::scale_mode::none
                                    ? 1.0f
                                    : qpn::detail::scale_of_row(layout, part, first + i, column);
            double const exact = qpn::reference::weight_at(layout, unscaled, first + i, k);
            float const value = static_cast<float>(exact) * scale;
            ASSERT_EQ(qpn::detail::float_bits(floats[at]), qpn::detail::float_bits(value))
                << "row " << i << ", column " << k;
            ASSERT_EQ(halves[at], qpn::encode_f16_saturating(value))
                << "row " << i << ", column " << k;
          }
        }
      }
    }
  }
}

TEST(gpu_prepack, device_info_makes_layouts) {
  qpn::device_info info;
  ASSERT_TRUE(qpn::test::device_info_of(0, info).ok());
  EXPECT_GE(info.compute_capability, 70);
  EXPECT_GE(info.max_threads_per_sm, 1024);
  EXPECT_GE(info.shared_bytes_per_sm, info.shared_bytes_per_block);
  EXPECT_GE(info.shared_bytes_per_block, 48 * 1024);
  EXPECT_GT(info.l2_bytes, 0);
  packed_layout layout;
  EXPECT_TRUE(qpn::make_packed_layout(qpn::format_id::fp8, qpn::scale_mode::tensor, 64, 64,
                                      dtype::f16, info, layout)
                  .ok());
}

TEST(gpu_device_info, a_device_that_is_not_there_is_an_error_and_leaves_the_output_alone) {
  qpn::device_info info;
  info.sm_count = 7;
  for (int const device : {-1, 4096}) {
    status const asked = qpn::test::device_info_of(device, info);
    EXPECT_EQ(asked.code, status_code::launch_failed);
    EXPECT_NE(asked.cuda_error, 0);
    EXPECT_EQ(info.sm_count, 7);
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <qpn/detail/device_dequantize.hpp>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <vector>

#include "support/aligned_bytes.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "support/serial_lane.hpp"
#include "support/weight_pieces.hpp"

// The program of dequantize.cuh, thread by thread on the host.

namespace {

using namespace qpn::detail;
using qpn::dtype;
using qpn::format_id;
using qpn::packed_layout;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;
using qpn::test::aligned_bytes;
using qpn::test::all_weight_kinds;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::weight_kind;

/// dequantize of dequantize.cuh.
status dequantize_serially(dequantize_params p) {
  return qpn::visit_format<status>(p.weight.layout.format, {}, [&](auto format) -> status {
    using Format = decltype(format);
    status const checked = check_dequantize<Format>(p);
    if (!checked.ok()) return checked;
    qpn::test::run_serially(units_of_rows<Format>(p.weight.layout, p.first_row, p.rows),
                            word_threads, false, nullptr,
                            [&](auto& lane) { dequantize_program<Format>(lane, p); });
    return {};
  });
}

/// [n, k]: the published weights with their fp32 scales, rounded to fp32 once.
std::vector<float> rounded_weights(published_weight const& weight) {
  packed_layout const& layout = weight.layout();
  std::vector<float> values;
  for (qpn::weight_part const& part : weight.views()) {
    qpn::weight_part unscaled = part;
    unscaled.global_scale = 1.0f;
    unscaled.channel_scales = nullptr;
    unscaled.scale_blocks = nullptr;
    for (std::int64_t row = 0; row < part.n; ++row) {
      for (std::int64_t k = 0; k < layout.k; ++k) {
        std::int64_t const column = layout.scale == scale_mode::block ? k / qpn::scale_block : 0;
        float const scale =
            layout.scale == scale_mode::none ? 1.0f : scale_of_row(layout, part, row, column);
        double const exact = qpn::reference::weight_at(layout, unscaled, row, k);
        values.push_back(static_cast<float>(exact) * scale);
      }
    }
  }
  return values;
}

aligned_bytes pack(published_weight const& weight, packed_layout const& layout) {
  aligned_bytes bytes(static_cast<std::size_t>(layout.total_bytes));
  std::vector<qpn::weight_part> const parts = weight.views();
  EXPECT_TRUE(qpn::prepack(layout, parts.data(), parts.size(), bytes.data()).ok());
  return bytes;
}

}  // namespace

TEST(device_dequantize, values_are_the_reference_rounded_once_whatever_rows_and_strides) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_source random(seed);
    for (weight_kind const kind : all_weight_kinds) {
      published_weight weight(kind, qpn::test::random_part_rows(kind.scale, random),
                              qpn::test::random_reduction_length(kind.format, random), random);
      // Some products beyond f16, and some below its normal numbers.
      if (kind.scale == scale_mode::tensor) weight.parts().back().global_scale = 300.0f;
      if (kind.scale == scale_mode::channel) {
        weight.parts().front().channel_scales.front() = -1e4f;
        weight.parts().back().channel_scales.back() = 1e-7f;
      }
      packed_layout const layout = qpn::test::gpu_layout_of(weight, seed);
      aligned_bytes bytes = pack(weight, layout);
      std::vector<float> const expected = rounded_weights(weight);
      for (dtype const type : {dtype::f16, dtype::f32}) {
        std::int64_t const element = qpn::bits(type) / 8;
        // A stride and start that allow words, and ones that do not.
        for (bool const by_words : {true, false}) {
          std::int64_t const first = random.integer(0, layout.n - 1);
          std::int64_t const rows = random.integer(1, layout.n - first);
          std::int64_t const ldo = by_words ? (layout.k + 7) / 8 * 8 : layout.k + 1;
          SCOPED_TRACE(testing::Message()
                       << kind << ", n " << layout.n << ", k " << layout.k << ", rows " << first
                       << " + " << rows << ", ldo " << ldo << ", seed " << random.seed());
          aligned_bytes out((rows * ldo + 1) * element);
          std::byte* const start = out.data() + (by_words ? 0 : element);
          status const done =
              dequantize_serially({{layout, bytes.data()}, first, rows, start, type, ldo, false});
          ASSERT_TRUE(done.ok()) << done.what;
          for (std::int64_t i = 0; i < rows * ldo; ++i) {
            std::uint32_t found = 0;
            std::memcpy(&found, start + i * element, static_cast<std::size_t>(element));
            std::uint32_t wanted = type == dtype::f16 ? 0xcdcdu : 0xcdcdcdcdu;  // untouched
            if (i % ldo < layout.k) {
              float const value =
                  expected[static_cast<std::size_t>((first + i / ldo) * layout.k + i % ldo)];
              wanted = type == dtype::f16 ? qpn::encode_f16_saturating(value) : float_bits(value);
            }
            ASSERT_EQ(found, wanted) << "row " << i / ldo << ", column " << i % ldo;
          }
        }
      }
    }
  }
}

TEST(device_dequantize, products_beyond_f16_saturate_and_those_beyond_f32_stay_infinite) {
  random_source random(2);
  published_weight weight({format_id::fp8, scale_mode::channel, dtype::f16}, {2}, 4, random);
  weight.parts().front().codes = {0x7e, 0xfe, 0x38, 0x00, 0x7e, 0xfe, 0x38, 0x00};  // 448 .. 1, 0
  weight.parts().front().channel_scales = {200.0f, 3e38f};
  packed_layout const layout = qpn::test::volta_layout_of(weight);
  aligned_bytes bytes = pack(weight, layout);
  std::vector<std::uint16_t> out(8);
  ASSERT_TRUE(
      dequantize_serially({{layout, bytes.data()}, 0, 2, out.data(), dtype::f16, 4, false}).ok());
  EXPECT_EQ(out, (std::vector<std::uint16_t>{0x7bff, 0xfbff, 0x5a40, 0x0000, 0x7c00, 0xfc00, 0x7bff,
                                             0x0000}));
}

TEST(device_dequantize, clamping_before_rounding_is_saturating_after_it) {
  random_source random(3);
  auto const expect_same = [](float value) {
    ASSERT_EQ(qpn::encode_f16(clamp_to_f16(value)), qpn::encode_f16_saturating(value)) << value;
  };
  for (int i = 0; i < 200000; ++i) {
    std::uint32_t const word = random.word();
    if (!is_nan_bits(word)) expect_same(bits_float(word));
  }
  for (std::uint32_t word = 0x477fd000u; word < 0x47802000u; ++word) {  // around 65504
    expect_same(bits_float(word));
    expect_same(bits_float(word | 0x80000000u));
  }
  expect_same(std::numeric_limits<float>::infinity());
}

TEST(device_dequantize, calls_that_cannot_be_launched_are_refused) {
  random_source random(4);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {67}, 48, random);
  packed_layout const layout = qpn::test::volta_layout_of(weight);
  aligned_bytes bytes = pack(weight, layout);
  aligned_bytes out(67 * 48 * 4);
  dequantize_params const good{{layout, bytes.data()}, 0, 67, out.data(), dtype::f32, 48, false};
  auto const code = [&](auto change) {
    dequantize_params p = good;
    change(p);
    return check_dequantize<qpn::fp8>(p).code;
  };
  EXPECT_EQ(code([](dequantize_params&) {}), status_code::ok);
  dequantize_params other = good;
  EXPECT_EQ(check_dequantize<qpn::nvfp4>(other).code, status_code::unsupported_format);
  EXPECT_EQ(code([&](dequantize_params& p) { p.weight.layout = weight.layout(); }),
            status_code::invalid_value);
  EXPECT_EQ(code([](dequantize_params& p) { p.weight.layout.ctas = 0; }),
            status_code::invalid_value);
  EXPECT_EQ(code([](dequantize_params& p) { p.out_type = dtype::bf16; }),
            status_code::unsupported_format);
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  for (std::int64_t const rows : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{68}, huge}) {
    EXPECT_EQ(code([rows](dequantize_params& p) { p.rows = rows; }), status_code::invalid_shape);
  }
  for (std::int64_t const row : {std::int64_t{-1}, std::int64_t{1}, std::int64_t{67}, huge}) {
    EXPECT_EQ(code([row](dequantize_params& p) { p.first_row = row; }), status_code::invalid_shape);
  }
  EXPECT_EQ(code([](dequantize_params& p) { p.ldo = 47; }), status_code::invalid_shape);
  EXPECT_EQ(code([](dequantize_params& p) { p.ldo = huge; }), status_code::invalid_shape);
  EXPECT_EQ(code([](dequantize_params& p) { p.out = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(code([](dequantize_params& p) { p.weight.data = nullptr; }),
            status_code::invalid_value);
  EXPECT_EQ(code([](dequantize_params& p) { p.weight.data += 4; }), status_code::misaligned);
  EXPECT_EQ(code([&](dequantize_params& p) { p.out = out.data() + 2; }), status_code::misaligned);
  EXPECT_EQ(code([&](dequantize_params& p) {
              p.out = out.data() + 2;
              p.out_type = dtype::f16;
            }),
            status_code::ok);
}

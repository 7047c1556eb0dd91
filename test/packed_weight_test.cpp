// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <qpn/packed_weight.hpp>
#include <string>
#include <type_traits>

#include "support/devices.hpp"
#include "support/published_weight.hpp"

namespace {

using qpn::device_info;
using qpn::dtype;
using qpn::format_id;
using qpn::packed_layout;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;

static_assert(std::is_trivially_copyable_v<packed_layout>);
static_assert(std::is_trivially_copyable_v<qpn::packed_weight>);

packed_layout make(format_id format, scale_mode scale, std::int64_t n, std::int64_t k,
                   dtype dense = dtype::f16) {
  packed_layout layout;
  status const made = qpn::make_packed_layout(format, scale, n, k, dense, layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

status_code refuse(format_id format, scale_mode scale, std::int64_t n, std::int64_t k,
                   dtype dense = dtype::f16) {
  packed_layout layout;
  packed_layout const untouched = layout;
  status const made = qpn::make_packed_layout(format, scale, n, k, dense, layout);
  EXPECT_EQ(layout, untouched) << "a refused layout must not be written";
  return made.code;
}

packed_layout make_for(device_info const& device, format_id format, scale_mode scale,
                       std::int64_t n, std::int64_t k, dtype dense = dtype::f16) {
  packed_layout layout;
  status const made = qpn::make_packed_layout(format, scale, n, k, dense, device, layout);
  EXPECT_TRUE(made.ok()) << made.what;
  return layout;
}

status_code refuse_for(device_info const& device, format_id format, scale_mode scale,
                       std::int64_t n, std::int64_t k, dtype dense = dtype::f16) {
  packed_layout layout;
  packed_layout const untouched = layout;
  status const made = qpn::make_packed_layout(format, scale, n, k, dense, device, layout);
  EXPECT_EQ(layout, untouched) << "a refused layout must not be written";
  return made.code;
}

constexpr device_info v100 = qpn::test::volta_v100();

}  // namespace

TEST(packed_weight, sections_of_an_nvfp4_weight_are_where_hand_arithmetic_puts_them) {
  packed_layout const layout = make(format_id::nvfp4, scale_mode::tensor, 33, 48);
  EXPECT_EQ(layout.padded_n, 64);
  EXPECT_EQ(layout.padded_k, 48);
  EXPECT_EQ(layout.code_type, dtype::e2m1);
  EXPECT_EQ(layout.codes_offset, 0);
  EXPECT_EQ(layout.block_scales_offset, 64 * 24);
  EXPECT_EQ(layout.scales_offset, 64 * 24 + 64 * 3);
  EXPECT_EQ(layout.total_bytes,
            64 * 24 + 64 * 3 + 64);  // two fp32 scales take one line of 64 bytes
}

TEST(packed_weight, sections_of_an_fp8_channel_weight_are_where_hand_arithmetic_puts_them) {
  packed_layout const layout = make(format_id::fp8, scale_mode::channel, 1, 1);
  EXPECT_EQ(layout.padded_n, 32);
  EXPECT_EQ(layout.padded_k, 16);
  EXPECT_EQ(layout.block_scales_offset, 512);
  EXPECT_EQ(layout.scales_offset, 512);
  EXPECT_EQ(layout.total_bytes, 512 + 128);
}

TEST(packed_weight, a_dense_weight_has_codes_only) {
  packed_layout const layout = make(format_id::dense16, scale_mode::none, 32, 17, dtype::bf16);
  EXPECT_EQ(layout.code_type, dtype::bf16);
  EXPECT_EQ(layout.total_bytes, 32 * 32 * 2);
  EXPECT_EQ(layout.scales_offset, layout.total_bytes);
}

TEST(packed_weight, sections_are_aligned_disjoint_and_large_enough_for_ragged_shapes) {
  for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
    for (std::int64_t n : {1, 31, 32, 33, 100, 4096}) {
      for (std::int64_t k : {16, 32, 48, 144, 1536}) {
        packed_layout const layout = make(kind.format, kind.scale, n, k, kind.dense_type);
        SCOPED_TRACE(testing::Message() << kind << " n " << n << " k " << k);
        EXPECT_TRUE(qpn::is_valid(layout));
        EXPECT_EQ(layout.codes_offset % 64, 0);
        EXPECT_EQ(layout.block_scales_offset % 64, 0);
        EXPECT_EQ(layout.scales_offset % 64, 0);
        EXPECT_GE((layout.block_scales_offset - layout.codes_offset) * 8,
                  layout.padded_n * layout.padded_k * qpn::bits(layout.code_type));
        std::int64_t const groups = kind.format == format_id::nvfp4 ? k / 16 : 0;
        EXPECT_GE(layout.scales_offset - layout.block_scales_offset, layout.padded_n * groups);
        std::int64_t const scales = kind.scale == scale_mode::none     ? 0
                                    : kind.scale == scale_mode::tensor ? layout.padded_n / 32
                                    : kind.scale == scale_mode::block
                                        ? layout.padded_n / 32 * ((k + 127) / 128)
                                        : layout.padded_n;
        EXPECT_GE(layout.total_bytes - layout.scales_offset, scales * 4);
      }
    }
  }
}

TEST(packed_weight, what_a_format_does_not_take_is_refused) {
  EXPECT_EQ(refuse(static_cast<format_id>(0), scale_mode::none, 32, 32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::nvfp4, scale_mode::none, 32, 32), status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::fp8, scale_mode::none, 32, 32), status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::dense16, scale_mode::tensor, 32, 32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::dense16, scale_mode::none, 32, 32, dtype::f32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::fp8, static_cast<scale_mode>(9), 32, 32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::nvfp4, scale_mode::block, 32, 32), status_code::unsupported_format);
  EXPECT_EQ(refuse(format_id::dense16, scale_mode::block, 32, 32), status_code::unsupported_format);
}

TEST(packed_weight, shapes_that_cannot_be_packed_are_refused) {
  EXPECT_EQ(refuse(format_id::fp8, scale_mode::tensor, 0, 32), status_code::invalid_shape);
  EXPECT_EQ(refuse(format_id::fp8, scale_mode::tensor, 32, -1), status_code::invalid_shape);
  EXPECT_EQ(refuse(format_id::nvfp4, scale_mode::tensor, 32, 8), status_code::invalid_shape);
  EXPECT_EQ(refuse(format_id::nvfp4, scale_mode::tensor, 32, 40), status_code::invalid_shape);
}

TEST(packed_weight, sizes_beyond_64_bits_are_refused_not_wrapped) {
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
    EXPECT_EQ(refuse(kind.format, kind.scale, huge, 16, kind.dense_type),
              status_code::invalid_shape);
    EXPECT_EQ(refuse(kind.format, kind.scale, 1, huge - 15, kind.dense_type),
              status_code::invalid_shape);
    // (2^31)^2 elements: the count fits, its bits do not; with 2^32 rows even the count does not.
    EXPECT_EQ(refuse(kind.format, kind.scale, std::int64_t{1} << 31, std::int64_t{1} << 31,
                     kind.dense_type),
              status_code::invalid_shape);
    EXPECT_EQ(refuse(kind.format, kind.scale, std::int64_t{1} << 32, std::int64_t{1} << 32,
                     kind.dense_type),
              status_code::invalid_shape);
  }
}

TEST(packed_weight, equality_and_validity_look_at_every_field) {
  packed_layout const layout = make(format_id::nvfp4, scale_mode::tensor, 33, 48);
  auto const differs = [&](auto change) {
    packed_layout other = layout;
    change(other);
    EXPECT_NE(other, layout);
    EXPECT_FALSE(qpn::is_valid(other));
  };
  differs([](packed_layout& l) { l.id = static_cast<qpn::layout_id>(7); });
  differs([](packed_layout& l) { l.version = 2; });
  differs([](packed_layout& l) { l.format = format_id::fp8; });
  differs([](packed_layout& l) { l.code_type = dtype::e4m3; });
  differs([](packed_layout& l) { l.scale = scale_mode::channel; });
  differs([](packed_layout& l) { l.n += 32; });
  differs([](packed_layout& l) { l.k += 16; });
  differs([](packed_layout& l) { l.padded_n += 32; });
  differs([](packed_layout& l) { l.padded_k += 16; });
  differs([](packed_layout& l) { l.codes_offset += 64; });
  differs([](packed_layout& l) { l.block_scales_offset += 64; });
  differs([](packed_layout& l) { l.scales_offset += 64; });
  differs([](packed_layout& l) { l.total_bytes += 64; });
  differs([](packed_layout& l) { l.ctas = 1; });
  differs([](packed_layout& l) { l.id = qpn::layout_id::sm70_quadpair; });
}

TEST(packed_weight, sections_of_a_quadpair_weight_are_where_hand_arithmetic_puts_them) {
  packed_layout layout = make_for(v100, format_id::nvfp4, scale_mode::tensor, 33, 80);
  EXPECT_EQ(layout.id, qpn::layout_id::sm70_quadpair);
  EXPECT_EQ(layout.version, 1);
  EXPECT_EQ(layout.code_type, dtype::e2m1);
  EXPECT_EQ(layout.padded_n, 64);
  EXPECT_EQ(layout.padded_k, 128);
  EXPECT_EQ(layout.codes_offset, 0);
  EXPECT_EQ(layout.block_scales_offset, 2 * 2 * 1152);  // the block scales are in the records
  EXPECT_EQ(layout.scales_offset, 2 * 2 * 1152);
  EXPECT_EQ(layout.total_bytes, 2 * 2 * 1152 + 128);
  EXPECT_EQ(layout.ctas, 1);

  layout = make_for(v100, format_id::fp8, scale_mode::channel, 65, 1);
  EXPECT_EQ(layout.padded_n, 128);
  EXPECT_EQ(layout.padded_k, 32);
  EXPECT_EQ(layout.scales_offset, 4 * 1024);
  EXPECT_EQ(layout.total_bytes, 4 * 1024 + 128 * 4);

  layout = make_for(v100, format_id::dense16, scale_mode::none, 64, 17, dtype::bf16);
  EXPECT_EQ(layout.padded_n, 64);
  EXPECT_EQ(layout.padded_k, 32);
  EXPECT_EQ(layout.scales_offset, 2 * 2 * 1024);
  EXPECT_EQ(layout.total_bytes, layout.scales_offset);
}

TEST(packed_weight, quadpair_sections_are_aligned_and_large_enough_for_ragged_shapes) {
  for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
    for (std::int64_t n : {1, 31, 33, 64, 65, 4096}) {
      for (std::int64_t k : {16, 48, 64, 80, 1536}) {
        packed_layout const layout = make_for(v100, kind.format, kind.scale, n, k, kind.dense_type);
        SCOPED_TRACE(testing::Message() << kind << " n " << n << " k " << k);
        EXPECT_TRUE(qpn::is_valid(layout));
        EXPECT_EQ(layout.padded_n % 64, 0);
        EXPECT_EQ(layout.scales_offset % 128, 0);
        EXPECT_EQ(layout.total_bytes % 128, 0);
        EXPECT_EQ(layout.block_scales_offset, layout.scales_offset);
        std::int64_t const groups = kind.format == format_id::nvfp4 ? layout.padded_k / 16 : 0;
        EXPECT_EQ(layout.scales_offset * 8,
                  layout.padded_n * (layout.padded_k * qpn::bits(layout.code_type) + 8 * groups));
        std::int64_t const scales = kind.scale == scale_mode::none     ? 0
                                    : kind.scale == scale_mode::tensor ? layout.padded_n / 32
                                    : kind.scale == scale_mode::block
                                        ? layout.padded_n / 32 * ((k + 127) / 128)
                                        : layout.padded_n;
        EXPECT_GE(layout.total_bytes - layout.scales_offset, scales * 4);
        EXPECT_LT(layout.total_bytes - layout.scales_offset, scales * 4 + 128);
      }
    }
  }
}

TEST(packed_weight, ctas_follow_from_the_weight_and_the_device) {
  auto const ctas = [](device_info const& device, std::int64_t n, std::int64_t k) {
    return make_for(device, format_id::nvfp4, scale_mode::tensor, n, k).ctas;
  };
  EXPECT_EQ(ctas(v100, 8704, 5120), 160);
  EXPECT_EQ(ctas(v100, 64, 15 * 64), 1);
  EXPECT_EQ(ctas(v100, 64, 17 * 64), 2);
  EXPECT_EQ(ctas(v100, 640, 1024), 10);
}

TEST(packed_weight, a_quadpair_layout_needs_a_device_that_can_run_it) {
  device_info pascal = v100;
  pascal.compute_capability = 61;
  EXPECT_EQ(refuse_for(pascal, format_id::fp8, scale_mode::tensor, 32, 32),
            status_code::unsupported_arch);
  for (int const count : {0, -1, 1025, (std::numeric_limits<int>::max)()}) {
    device_info device = v100;
    device.sm_count = count;
    EXPECT_EQ(refuse_for(device, format_id::fp8, scale_mode::tensor, 32, 32),
              status_code::invalid_value)
        << count;
  }
}

TEST(packed_weight, a_quadpair_layout_refuses_what_every_layout_refuses) {
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  EXPECT_EQ(refuse_for(v100, static_cast<format_id>(0), scale_mode::none, 32, 32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse_for(v100, format_id::nvfp4, scale_mode::none, 32, 32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse_for(v100, format_id::dense16, scale_mode::none, 32, 32, dtype::f32),
            status_code::unsupported_format);
  EXPECT_EQ(refuse_for(v100, format_id::nvfp4, scale_mode::block, 128, 128),
            status_code::unsupported_format);
  EXPECT_EQ(refuse_for(v100, format_id::fp8, scale_mode::tensor, 0, 32),
            status_code::invalid_shape);
  EXPECT_EQ(refuse_for(v100, format_id::nvfp4, scale_mode::tensor, 32, 40),
            status_code::invalid_shape);
  for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
    EXPECT_EQ(refuse_for(v100, kind.format, kind.scale, huge, 16, kind.dense_type),
              status_code::invalid_shape);
    EXPECT_EQ(refuse_for(v100, kind.format, kind.scale, 1, huge - 15, kind.dense_type),
              status_code::invalid_shape);
    EXPECT_EQ(refuse_for(v100, kind.format, kind.scale, std::int64_t{1} << 31,
                         std::int64_t{1} << 31, kind.dense_type),
              status_code::invalid_shape);
  }
}

TEST(packed_weight, a_quadpair_layout_has_at_most_as_many_units_as_an_int_counts) {
  constexpr std::int64_t most = (std::numeric_limits<std::int32_t>::max)();
  packed_layout layout = make_for(v100, format_id::fp8, scale_mode::tensor, 64, 32 * most);
  EXPECT_TRUE(qpn::is_valid(layout));
  EXPECT_EQ(layout.scales_offset, most * 2 * 1024);
  EXPECT_EQ(layout.ctas, 160);

  EXPECT_EQ(refuse_for(v100, format_id::fp8, scale_mode::tensor, 64, 32 * most + 1),
            status_code::invalid_shape);
  EXPECT_EQ(refuse_for(v100, format_id::nvfp4, scale_mode::channel, 64 * 65536, 64 * 32768),
            status_code::invalid_shape);
  EXPECT_EQ(refuse_for(v100, format_id::dense16, scale_mode::none, 64 * most + 1, 16),
            status_code::invalid_shape);
  status const refused = qpn::make_packed_layout(format_id::fp8, scale_mode::tensor, 64 * most + 1,
                                                 32, dtype::f16, v100, layout);
  EXPECT_NE(std::string(refused.what).find("2^31 - 1 units"), std::string::npos) << refused.what;

  layout.n += 64;  // what make_packed_layout would fill in
  layout.padded_n += 64;
  layout.scales_offset *= 2;
  layout.block_scales_offset *= 2;
  layout.total_bytes = layout.scales_offset + 128;
  EXPECT_FALSE(qpn::is_valid(layout));
}

TEST(packed_weight, validity_of_a_quadpair_layout_looks_at_every_field) {
  packed_layout const layout = make_for(v100, format_id::nvfp4, scale_mode::tensor, 128, 1024);
  ASSERT_EQ(layout.ctas, 2);
  auto const differs = [&](auto change) {
    packed_layout other = layout;
    change(other);
    EXPECT_NE(other, layout);
    EXPECT_FALSE(qpn::is_valid(other));
  };
  differs([](packed_layout& l) { l.id = qpn::layout_id::cpu_tile32; });
  differs([](packed_layout& l) { l.version = 2; });
  differs([](packed_layout& l) { l.format = format_id::fp8; });
  differs([](packed_layout& l) { l.code_type = dtype::e4m3; });
  differs([](packed_layout& l) { l.scale = scale_mode::none; });
  differs([](packed_layout& l) { l.n += 64; });
  differs([](packed_layout& l) { l.k += 64; });
  differs([](packed_layout& l) { l.padded_n += 64; });
  differs([](packed_layout& l) { l.padded_k += 64; });
  differs([](packed_layout& l) { l.codes_offset += 128; });
  differs([](packed_layout& l) { l.block_scales_offset += 128; });
  differs([](packed_layout& l) { l.scales_offset += 128; });
  differs([](packed_layout& l) { l.total_bytes += 128; });
  differs([](packed_layout& l) { l.ctas = 0; });
}

TEST(packed_weight, a_quadpair_layout_is_valid_with_the_ctas_of_some_device_only) {
  // 7 tile groups of 5 steps: work for at most 3 CTAs; devices offer 2, 4, 6 ... of them.
  packed_layout layout = make_for(v100, format_id::nvfp4, scale_mode::tensor, 7 * 64, 5 * 64);
  ASSERT_EQ(layout.ctas, 3);
  for (int const ctas : {-2, -1, 0, 1, 2, 3, 4, 160, (std::numeric_limits<int>::max)(),
                         (std::numeric_limits<int>::min)()}) {
    layout.ctas = ctas;
    EXPECT_EQ(qpn::is_valid(layout), ctas == 2 || ctas == 3) << ctas;
  }
}

constexpr device_info h200 = qpn::test::hopper_h200();

TEST(packed_weight, an_mma16_weight_has_the_sections_of_a_quadpair_one_and_block_scales) {
  for (qpn::test::weight_kind const kind : qpn::test::all_weight_kinds) {
    for (std::int64_t n : {1, 64, 65, 130, 4096}) {
      for (std::int64_t k : {16, 80, 1536}) {
        SCOPED_TRACE(testing::Message() << kind << " n " << n << " k " << k);
        packed_layout const layout = make_for(h200, kind.format, kind.scale, n, k, kind.dense_type);
        packed_layout quadpair = make_for(v100, kind.format, kind.scale, n, k, kind.dense_type);
        EXPECT_EQ(layout.id, qpn::layout_id::sm80_mma16);
        quadpair.id = layout.id;
        quadpair.ctas = layout.ctas;
        EXPECT_EQ(layout, quadpair);
        EXPECT_TRUE(qpn::is_valid(layout));
      }
    }
  }
  packed_layout const layout = make_for(h200, format_id::fp8, scale_mode::block, 200, 300);
  EXPECT_EQ(layout.padded_n, 256);
  EXPECT_EQ(layout.padded_k, 320);
  EXPECT_EQ(layout.scales_offset, 8 * 10 * 1024);
  EXPECT_EQ(layout.total_bytes, layout.scales_offset + 128);  // 8 tiles by 3 blocks of k
}

TEST(packed_weight, a_gpu_layout_can_be_chosen_where_the_device_runs_it) {
  packed_layout layout;
  auto const choose = [&](device_info const& device, qpn::layout_id id) {
    return qpn::make_packed_layout(format_id::fp8, scale_mode::tensor, 64, 64, dtype::f16, device,
                                   id, layout)
        .code;
  };
  EXPECT_EQ(choose(h200, qpn::layout_id::sm70_quadpair), status_code::ok);
  EXPECT_EQ(layout.id, qpn::layout_id::sm70_quadpair);
  EXPECT_EQ(choose(h200, qpn::layout_id::sm80_mma16), status_code::ok);
  EXPECT_EQ(choose(v100, qpn::layout_id::sm80_mma16), status_code::unsupported_arch);
  EXPECT_EQ(choose(h200, qpn::layout_id::cpu_tile32), status_code::invalid_value);
  EXPECT_EQ(qpn::layout_for(v100), qpn::layout_id::sm70_quadpair);
}

TEST(packed_weight, an_mma16_weight_keeps_its_count_of_slices) {
  for (std::int64_t n : {64, 200, 1280, 5120, 34816}) {
    for (int sm_count : {1, 40, 132, 1024}) {
      device_info device = h200;
      device.sm_count = sm_count;
      packed_layout layout = make_for(device, format_id::fp8, scale_mode::tensor, n, 1536);
      EXPECT_EQ(layout.ctas, qpn::detail::choose_slices(layout.padded_n / 32, 12, sm_count));
      EXPECT_TRUE(qpn::is_valid(layout)) << n << " on " << sm_count << ": " << layout.ctas;
      layout.ctas = 7;
      EXPECT_TRUE(qpn::is_valid(layout));
      for (std::int32_t slices : {0, 9, 2000, -1}) {
        layout.ctas = slices;
        EXPECT_FALSE(qpn::is_valid(layout)) << slices;
      }
    }
  }
}

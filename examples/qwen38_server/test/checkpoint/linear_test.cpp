// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using test::checkpoint_fixture;
using test::error_of;
using test::held_values;
using test::temp_directory;

// Writes the fixture and opens it.
class opened {
 public:
  explicit opened(checkpoint_fixture const& fixture, open_mode mode = open_mode::full)
      : tensors_((mode == open_mode::full ? fixture.write(dir_.path())
                                          : fixture.write_headers_only(dir_.path()),
                  repository(dir_.path(), mode))) {}
  repository& operator*() { return tensors_; }
  repository* operator->() { return &tensors_; }

 private:
  temp_directory dir_;
  repository tensors_;
};

constexpr std::int64_t n = 48;
constexpr std::int64_t k = 32;

TEST(find_linear, tells_each_class_from_its_tensors) {
  checkpoint_fixture f;
  f.add_nvfp4("four", n, k);
  f.add_fp8("eight", n, k);
  f.add("dense.weight", storage_dtype::bf16, {n, k});
  f.add("half.weight", storage_dtype::f16, {n, k});
  opened tensors(f);

  linear_view const four = find_linear(*tensors, "four", n, k);
  EXPECT_EQ(four.cls, quant_class::nvfp4);
  EXPECT_EQ(four.format, qpn::format_id::nvfp4);
  EXPECT_EQ(four.scales, qpn::scale_mode::tensor);
  EXPECT_EQ(four.codes.data(), tensors->find("four.weight")->bytes.data());
  EXPECT_EQ(four.codes.size(), static_cast<std::size_t>(n * k / 2));
  EXPECT_EQ(four.block_scales.data(), tensors->find("four.weight_scale")->bytes.data());
  EXPECT_EQ(four.block_scales.size(), static_cast<std::size_t>(n * k / 16));
  EXPECT_EQ(four.scale, 0x1p-10f);

  linear_view const eight = find_linear(*tensors, "eight", n, k);
  EXPECT_EQ(eight.cls, quant_class::fp8_tensor);
  EXPECT_EQ(eight.format, qpn::format_id::fp8);
  EXPECT_EQ(eight.scales, qpn::scale_mode::tensor);
  EXPECT_TRUE(eight.block_scales.empty());
  EXPECT_EQ(eight.scale, 0x1p-9f);

  linear_view const dense = find_linear(*tensors, "dense", n, k);
  EXPECT_EQ(dense.cls, quant_class::bf16);
  EXPECT_EQ(dense.format, qpn::format_id::dense16);
  EXPECT_EQ(dense.dense_type, qpn::dtype::bf16);
  EXPECT_EQ(dense.scales, qpn::scale_mode::none);
  EXPECT_EQ(dense.scale, 1.0f);

  linear_view const half = find_linear(*tensors, "half", n, k);
  EXPECT_EQ(half.cls, quant_class::f16);
  EXPECT_EQ(half.dense_type, qpn::dtype::f16);

  EXPECT_TRUE(tensors->unused().empty());
}

TEST(find_linear, takes_a_tensor_scale_of_shape_1) {
  checkpoint_fixture f;
  f.add_fp8("m", n, k);
  f.tensors["m.weight_scale"].shape = {1};
  opened tensors(f);
  EXPECT_EQ(find_linear(*tensors, "m", n, k).scale, 0x1p-9f);
}

TEST(find_linear, gives_qpn_the_same_bytes_and_scale) {
  checkpoint_fixture f;
  f.add_nvfp4("m", n, k);
  opened tensors(f);
  linear_view const linear = find_linear(*tensors, "m", n, k);
  qpn::weight_part const part = to_part(linear);
  EXPECT_EQ(part.n, n);
  EXPECT_EQ(part.codes, linear.codes.data());
  EXPECT_EQ(part.block_scales, linear.block_scales.data());
  EXPECT_EQ(part.global_scale, linear.scale);
  EXPECT_EQ(part.channel_scales, nullptr);
}

void set_bytes(checkpoint_fixture& f, std::string const& name, void const* data, std::size_t size) {
  auto const* const first = static_cast<std::byte const*>(data);
  f.tensors.at(name).bytes.assign(first, first + size);
}

void add_packed(checkpoint_fixture& f, std::string const& module, float divisor) {
  f.add(module + ".weight_packed", storage_dtype::u8, {n, k / 2});
  f.add(module + ".weight_scale", storage_dtype::f8_e4m3, {n, k / 16});
  f.add_f32(module + ".weight_global_scale", divisor);
  f.add_f32(module + ".input_global_scale", 0x1p8f);
}

// serving.md Q1: the same numbers from both exporters, where one stores 2688 / amax and the other
// amax / 2688.
TEST(find_linear, reads_the_same_values_from_both_nvfp4_formats) {
  checkpoint_fixture f;
  f.add_nvfp4("multiplier", n, k);
  add_packed(f, "divisor", 0x1p10f);
  std::vector<std::uint8_t> codes(n * k / 2);
  std::vector<std::uint8_t> scales(n * k / 16);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 37 + 11);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i % 127);
  set_bytes(f, "multiplier.weight", codes.data(), codes.size());
  set_bytes(f, "divisor.weight_packed", codes.data(), codes.size());
  set_bytes(f, "multiplier.weight_scale", scales.data(), scales.size());
  set_bytes(f, "divisor.weight_scale", scales.data(), scales.size());
  opened tensors(f);
  linear_view const multiplier = find_linear(*tensors, "multiplier", n, k);
  linear_view const divisor = find_linear(*tensors, "divisor", n, k);
  EXPECT_EQ(divisor.cls, quant_class::nvfp4);
  EXPECT_EQ(divisor.scale, 0x1p-10f);
  EXPECT_EQ(held_values(multiplier), held_values(divisor));
  EXPECT_TRUE(tensors->unused().empty());
}

TEST(find_linear, rounds_the_reciprocal_of_a_divisor_once) {
  checkpoint_fixture f;
  add_packed(f, "m", 2688.0f / 0.37f);
  opened tensors(f);
  EXPECT_EQ(find_linear(*tensors, "m", n, k).scale, 1.0f / (2688.0f / 0.37f));
}

TEST(find_linear, takes_channel_scales_of_both_types_and_shapes) {
  checkpoint_fixture f;
  std::vector<std::uint16_t> narrow(n);
  std::vector<float> wide(n);
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    narrow[i] = static_cast<std::uint16_t>(0x3c00 + 3 * i);
    wide[i] = qpn::decode_bf16(narrow[i]);
  }
  for (std::string const module : {"narrow", "wide"}) f.add_fp8(module, n, k);
  f.add("narrow.weight_scale", storage_dtype::bf16, {n, 1});
  set_bytes(f, "narrow.weight_scale", narrow.data(), 2 * n);
  f.add("wide.weight_scale", storage_dtype::f32, {n});
  set_bytes(f, "wide.weight_scale", wide.data(), 4 * n);
  opened tensors(f);
  for (std::string const module : {"narrow", "wide"}) {
    linear_view const linear = find_linear(*tensors, module, n, k);
    EXPECT_EQ(linear.cls, quant_class::fp8_channel);
    EXPECT_EQ(linear.scales, qpn::scale_mode::channel);
    EXPECT_EQ(linear.channel_scales, wide);
    EXPECT_EQ(to_part(linear).channel_scales, linear.channel_scales.data());
  }
}

TEST(find_linear, takes_a_tensor_scale_in_bf16) {
  checkpoint_fixture f;
  f.add_fp8("m", n, k);
  std::uint16_t const half = 0x3f00;
  f.add("m.weight_scale", storage_dtype::bf16, {1});
  set_bytes(f, "m.weight_scale", &half, sizeof half);
  opened tensors(f);
  linear_view const linear = find_linear(*tensors, "m", n, k);
  EXPECT_EQ(linear.cls, quant_class::fp8_tensor);
  EXPECT_EQ(linear.scale, 0.5f);
}

// FP8 [200, 300] with a grid of 2 x 3 scales; codes take every value but NaN.
struct block_case {
  static constexpr std::int64_t rows = 200;
  static constexpr std::int64_t columns = 300;
  std::vector<float> scales;
  std::string name = ".weight_scale_inv";

  checkpoint_fixture fixture() const {
    checkpoint_fixture f;
    f.add("m.weight", storage_dtype::f8_e4m3, {rows, columns});
    auto const all = codes();
    set_bytes(f, "m.weight", all.data(), all.size());
    f.add("m" + name, storage_dtype::f32, {2, 3});
    set_bytes(f, "m" + name, scales.data(), 4 * scales.size());
    return f;
  }
  static std::vector<std::uint8_t> codes() {
    std::vector<std::uint8_t> all(rows * columns);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
      if (qpn::is_nan_e4m3(all[i])) all[i] = 0x7e;
    }
    return all;
  }
  std::vector<float> values() const {
    std::vector<float> all;
    auto const c = codes();
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      std::int64_t const block = i / columns / 128 * 3 + i % columns / 128;
      all.push_back(qpn::decode_e4m3(c[static_cast<std::size_t>(i)]) *
                    scales[static_cast<std::size_t>(block)]);
    }
    return all;
  }
};

TEST(find_linear, takes_block_scales_of_both_names_and_types) {
  block_case const inverse{{0.3f, 1e-4f, 7.0f, 0.7f, 0x1p-20f, 3e2f}};
  block_case const plain{{0.3f, 0.3f, 0.3f, 0.3f, 0.3f, 0.3f}, ".weight_scale"};
  for (block_case const& c : {inverse, plain}) {
    opened tensors(c.fixture());
    linear_view const linear = find_linear(*tensors, "m", c.rows, c.columns);
    EXPECT_EQ(linear.cls, quant_class::fp8_block);
    EXPECT_EQ(linear.format, qpn::format_id::fp8);
    EXPECT_EQ(linear.scales, qpn::scale_mode::block);
    EXPECT_EQ(linear.scale_blocks, c.scales);
    EXPECT_EQ(to_part(linear).scale_blocks, linear.scale_blocks.data());
    EXPECT_EQ(held_values(linear), c.values());
    EXPECT_EQ(linear.codes.data(), tensors->find("m.weight")->bytes.data());
  }
  block_case c{std::vector<float>(6)};
  std::vector<std::uint16_t> narrow;
  for (std::size_t i = 0; i < 6; ++i) {
    narrow.push_back(static_cast<std::uint16_t>(0x3c00 + 77 * i));
    c.scales[i] = qpn::decode_bf16(narrow[i]);
  }
  checkpoint_fixture f = c.fixture();
  f.add("m.weight_scale_inv", storage_dtype::bf16, {2, 3});
  set_bytes(f, "m.weight_scale_inv", narrow.data(), 2 * narrow.size());
  opened tensors(f);
  EXPECT_EQ(held_values(find_linear(*tensors, "m", c.rows, c.columns)), c.values());
}

struct refused {
  std::string name;
  std::function<void(checkpoint_fixture&)> make;
  std::string sentence;
};

std::vector<refused> refused_linears() {
  auto const nvfp4_with = [](std::function<void(checkpoint_fixture&)> change) {
    return [change](checkpoint_fixture& f) {
      f.add_nvfp4("m", n, k);
      change(f);
    };
  };
  auto const fp8_with = [](std::function<void(checkpoint_fixture&)> change) {
    return [change](checkpoint_fixture& f) {
      f.add_fp8("m", n, k);
      change(f);
    };
  };
  auto const dense_with = [](std::function<void(checkpoint_fixture&)> change) {
    return [change](checkpoint_fixture& f) {
      f.add("m.weight", storage_dtype::bf16, {n, k});
      change(f);
    };
  };
  auto const foreign = [](std::string const& field, std::string const& format) {
    return "linear \"m\": " + field + " means " + format +
           ", which is not supported; NVFP4, FP8 with tensor, channel or 128x128 block scales, "
           "BF16 and F16 are";
  };
  using fixture = checkpoint_fixture;
  return {
      {"no_weight", [](fixture& f) { f.add_f32("m.weight_scale", 1); },
       "linear \"m\": its weight is missing from the checkpoint"},
      {"nvfp4_without_block_scales", nvfp4_with([](fixture& f) { f.erase("m.weight_scale"); }),
       "linear \"m\": weight_scale is missing, but the weight is quantised: U8 [48, 16]"},
      {"nvfp4_without_global_scale", nvfp4_with([](fixture& f) { f.erase("m.weight_scale_2"); }),
       "linear \"m\": weight_scale_2 is missing, but the weight is quantised: U8 [48, 16]"},
      {"nvfp4_of_other_shape", nvfp4_with([](fixture& f) {
         f.tensors["m.weight"].shape = {n, k};
       }),
       "linear \"m\": weight is U8 [48, 32], but U8 [48, 16] is expected"},
      {"nvfp4_swizzled_scales", nvfp4_with([](fixture& f) {
         f.tensors["m.weight_scale"].shape = {128, 4};
       }),
       "linear \"m\": weight_scale is F8_E4M3 [128, 4], but F8_E4M3 [48, 2] is expected"},
      {"nvfp4_e8m0_scales",
       nvfp4_with([](fixture& f) { f.tensors["m.weight_scale"].dtype = storage_dtype::f8_e8m0; }),
       "linear \"m\": weight_scale is F8_E8M0 [48, 2], but F8_E4M3 [48, 2] is expected"},
      {"nvfp4_global_scale_per_row",
       nvfp4_with([](fixture& f) { f.add("m.weight_scale_2", storage_dtype::f32, {n}); }),
       "linear \"m\": weight_scale_2 is F32 [48], but F32 [] is expected"},
      {"fp8_without_scale", fp8_with([](fixture& f) { f.erase("m.weight_scale"); }),
       "linear \"m\": weight_scale is missing, but the weight is quantised: F8_E4M3 [48, 32]"},
      {"fp8_with_second_scale", fp8_with([](fixture& f) { f.add_f32("m.weight_scale_2", 1); }),
       "linear \"m\": weight_scale_2 is there, but a weight stored as F8_E4M3 [48, 32] has no such "
       "scale"},
      {"fp8_scales_of_another_grid", fp8_with([](fixture& f) {
         f.add("m.weight_scale", storage_dtype::f32, {2, 2});
       }),
       "linear \"m\": weight_scale is F32 [2, 2], but F32 [] (tensor), F32 [48, 1] (channel) or "
       "F32 [1, 1] (128x128 blocks), or the same in BF16, is expected"},
      {"fp8_block_scales_of_another_grid", fp8_with([](fixture& f) {
         f.erase("m.weight_scale");
         f.add("m.weight_scale_inv", storage_dtype::f32, {1, 2});
       }),
       "linear \"m\": weight_scale_inv is F32 [1, 2], but F32 [1, 1] (128x128 blocks), or the same "
       "in BF16, is expected"},
      {"fp8_block_scales_beside_a_tensor_scale", fp8_with([](fixture& f) {
         f.add("m.weight_scale_inv", storage_dtype::f32, {1, 1});
       }),
       "linear \"m\": weight_scale is there, but a weight stored as F8_E4M3 [48, 32] has no such "
       "scale"},
      {"fp8_f16_scale",
       fp8_with([](fixture& f) { f.add("m.weight_scale", storage_dtype::f16, {}); }),
       "linear \"m\": weight_scale is F16 [], but F32 [] (tensor), F32 [48, 1] (channel) or F32 "
       "[1, "
       "1] (128x128 blocks), or the same in BF16, is expected"},
      {"fp8_of_other_shape", fp8_with([](fixture& f) {
         f.tensors["m.weight"].shape = {k, n};
       }),
       "linear \"m\": weight is F8_E4M3 [32, 48], but F8_E4M3 [48, 32] is expected"},
      {"fp8_e5m2",
       fp8_with([](fixture& f) { f.tensors["m.weight"].dtype = storage_dtype::f8_e5m2; }),
       "linear \"m\": a weight stored as F8_E5M2 [48, 32] is not supported; U8 (NVFP4), F8_E4M3, "
       "BF16 and F16 are"},
      {"scale_zero", fp8_with([](fixture& f) { f.add_f32("m.weight_scale", 0.0f); }),
       "linear \"m\": weight_scale is 0.000000, but a finite positive number is expected"},
      {"scale_negative_zero", fp8_with([](fixture& f) { f.add_f32("m.weight_scale", -0.0f); }),
       "linear \"m\": weight_scale is -0.000000, but a finite positive number is expected"},
      {"scale_negative", fp8_with([](fixture& f) { f.add_f32("m.weight_scale", -0.5f); }),
       "linear \"m\": weight_scale is -0.500000, but a finite positive number is expected"},
      {"scale_infinite", nvfp4_with([](fixture& f) {
         f.add_f32("m.weight_scale_2", std::numeric_limits<float>::infinity());
       }),
       "linear \"m\": weight_scale_2 is inf, but a finite positive number is expected"},
      {"scale_nan", nvfp4_with([](fixture& f) {
         f.add_f32("m.weight_scale_2", std::numeric_limits<float>::quiet_NaN());
       }),
       "linear \"m\": weight_scale_2 is nan, but a finite positive number is expected"},
      {"dense_with_scale", dense_with([](fixture& f) { f.add_f32("m.weight_scale", 1); }),
       "linear \"m\": weight_scale is there, but a weight stored as BF16 [48, 32] has no such "
       "scale"},
      {"dense_of_other_shape", dense_with([](fixture& f) {
         f.tensors["m.weight"].shape = {n, k, 1};
       }),
       "linear \"m\": weight is BF16 [48, 32, 1], but BF16 [48, 32] is expected"},
      {"dense_f32",
       dense_with([](fixture& f) { f.tensors["m.weight"].dtype = storage_dtype::f32; }),
       "linear \"m\": a weight stored as F32 [48, 32] is not supported; U8 (NVFP4), F8_E4M3, BF16 "
       "and F16 are"},
      {"int8", dense_with([](fixture& f) { f.tensors["m.weight"].dtype = storage_dtype::i8; }),
       "linear \"m\": a weight stored as I8 [48, 32] is not supported; U8 (NVFP4), F8_E4M3, BF16 "
       "and F16 are"},
      {"bias", dense_with([](fixture& f) { f.add("m.bias", storage_dtype::bf16, {n}); }),
       foreign("bias", "a linear layer with a bias")},
      {"compressed_tensors_integers",
       dense_with([](fixture& f) { f.add("m.weight_zero_point", storage_dtype::i8, {n}); }),
       foreign("weight_zero_point", "compressed-tensors' integer format")},
      {"divisor_beside_a_multiplier",
       nvfp4_with([](fixture& f) { f.add("m.weight_global_scale", storage_dtype::f32, {1}); }),
       "linear \"m\": weight_global_scale is there, but a weight stored as U8 [48, 16] has no such "
       "scale"},
      {"awq_pre_scale",
       nvfp4_with([](fixture& f) { f.add("m.pre_quant_scale", storage_dtype::bf16, {k}); }),
       foreign("pre_quant_scale", "ModelOpt's AWQ format")},
      {"gptq",
       [](fixture& f) {
         f.add("m.qweight", storage_dtype::i32, {4, n});
       },
       foreign("qweight", "the GPTQ or AWQ format")},
  };
}

TEST(find_linear, refuses_each_other_form_by_name) {
  for (refused const& c : refused_linears()) {
    checkpoint_fixture f;
    c.make(f);
    opened tensors(f);
    EXPECT_EQ(error_of([&] { (void)find_linear(*tensors, "m", n, k); }), c.sentence) << c.name;
    // What was refused is accounted for by that sentence.
    EXPECT_TRUE(tensors->unused().empty()) << c.name;
  }
}

TEST(find_linear, refuses_nvfp4_with_a_ragged_last_group) {
  checkpoint_fixture f;
  f.add_nvfp4("m", n, 40);
  opened tensors(f);
  EXPECT_EQ(error_of([&] { (void)find_linear(*tensors, "m", n, 40); }),
            "linear \"m\": NVFP4 needs inputs in groups of 16, but the layer has 40");
}

TEST(find_linear, decides_the_class_without_data) {
  checkpoint_fixture f;
  f.add_nvfp4("four", n, k);
  f.add_fp8("eight", n, k);
  opened tensors(f, open_mode::headers_only);
  linear_view const four = find_linear(*tensors, "four", n, k);
  EXPECT_EQ(four.cls, quant_class::nvfp4);
  EXPECT_TRUE(four.codes.empty());
  EXPECT_EQ(find_linear(*tensors, "eight", n, k).cls, quant_class::fp8_tensor);
  EXPECT_NE(error_of([&] { (void)find_linear(*tensors, "four", n, 2 * k); }), "");
}

std::vector<std::byte> bytes_of(void const* data, std::size_t size) {
  auto const* const first = static_cast<std::byte const*>(data);
  return {first, first + size};
}

TEST(find_dense, converts_bf16_f16_and_f32_exactly) {
  checkpoint_fixture f;
  std::uint16_t const bf16[] = {0x3f80, 0xc000, 0x0001, 0x8000};
  std::uint16_t const f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff};
  float const f32[] = {1.0f, -2.5f, 1e-45f, 3e38f};
  f.add("b", storage_dtype::bf16, {2, 2});
  f.tensors["b"].bytes = bytes_of(bf16, sizeof bf16);
  f.add("h", storage_dtype::f16, {4});
  f.tensors["h"].bytes = bytes_of(f16, sizeof f16);
  f.add("f", storage_dtype::f32, {4});
  f.tensors["f"].bytes = bytes_of(f32, sizeof f32);
  opened tensors(f);
  std::vector<float> const b = find_dense(*tensors, "b", {2, 2}).to_f32();
  EXPECT_EQ(b, (std::vector<float>{1.0f, -2.0f, 0x1p-133f, -0.0f}));
  EXPECT_TRUE(std::signbit(b[3]));
  EXPECT_EQ(find_dense(*tensors, "h", {4}).to_f32(),
            (std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f}));
  EXPECT_EQ(find_dense(*tensors, "f", {4}).to_f32(),
            (std::vector<float>{1.0f, -2.5f, 1e-45f, 3e38f}));
  float row[2] = {};
  find_dense(*tensors, "b", {2, 2}).to_f32(1, row);
  EXPECT_EQ(row[0], -2.0f);
  EXPECT_EQ(row[1], 0x1p-133f);
  EXPECT_TRUE(tensors->unused().empty());
}

TEST(find_dense, refuses_other_shapes_types_and_values) {
  checkpoint_fixture f;
  f.add("a", storage_dtype::bf16, {4});
  f.add("i", storage_dtype::i32, {4});
  std::uint16_t const infinite[] = {0x3f80, 0x7f80};
  f.add("x", storage_dtype::bf16, {2});
  f.tensors["x"].bytes = bytes_of(infinite, sizeof infinite);
  opened tensors(f);
  EXPECT_EQ(error_of([&] {
              (void)find_dense(*tensors, "a", {4, 1});
            }),
            "tensor \"a\" is BF16 [4], but BF16 [4, 1] (or F16, F32) is expected");
  EXPECT_EQ(error_of([&] { (void)find_dense(*tensors, "i", {4}); }),
            "tensor \"i\" is I32 [4], but BF16 [4] (or F16, F32) is expected");
  EXPECT_NE(
      error_of([&] { (void)find_dense(*tensors, "none", {4}); }).find("tensor \"none\" is missing"),
      std::string::npos);
  EXPECT_EQ(error_of([&] { (void)find_dense(*tensors, "x", {2}).to_f32(); }),
            "tensor \"x\" is NaN or infinite at element 1");
  float out[3] = {};
  EXPECT_EQ(error_of([&] { find_dense(*tensors, "a", {4}).to_f32(2, out); }),
            "tensor \"a\": 3 elements from 2 on were asked for, but it has 4");
  EXPECT_NE(error_of([&] { find_dense(*tensors, "a", {4}).to_f32(5, {}); }), "");
}

}  // namespace
}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_linear.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/prepack.hpp>
#include <random>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using test::checkpoint_fixture;
using test::error_of;
using test::temp_directory;

void fill(std::vector<std::byte>& bytes, std::size_t size, std::mt19937& random) {
  bytes.resize(size);
  for (std::byte& b : bytes) {
    do {
      b = static_cast<std::byte>(random());
    } while ((b & std::byte{0x7f}) == std::byte{0x7f});  // e4m3 NaN
  }
}

// Modules p0, p1, ... of the given rows and class, with random codes and a scale of its own each.
checkpoint_fixture random_parts(quant_class cls, std::vector<std::int64_t> const& rows,
                                std::int64_t k, std::mt19937& random) {
  checkpoint_fixture f;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string const module = "p" + std::to_string(i);
    float const scale = static_cast<float>(i + 1) * 0x1p-9f;
    if (cls == quant_class::nvfp4) {
      f.add_nvfp4(module, rows[i], k);
      f.add_f32(module + ".weight_scale_2", scale);
      fill(f.tensors[module + ".weight_scale"].bytes, static_cast<std::size_t>(rows[i] * k / 16),
           random);
      fill(f.tensors[module + ".weight"].bytes, static_cast<std::size_t>(rows[i] * k / 2), random);
    } else if (cls == quant_class::fp8_tensor) {
      f.add_fp8(module, rows[i], k);
      f.add_f32(module + ".weight_scale", scale);
      fill(f.tensors[module + ".weight"].bytes, static_cast<std::size_t>(rows[i] * k), random);
    } else {
      f.add(module + ".weight", cls == quant_class::bf16 ? storage_dtype::bf16 : storage_dtype::f16,
            {rows[i], k});
      fill(f.tensors[module + ".weight"].bytes, static_cast<std::size_t>(rows[i] * k * 2), random);
      // No infinities or NaNs: clear an exponent bit of both types.
      for (std::size_t b = 1; b < f.tensors[module + ".weight"].bytes.size(); b += 2) {
        f.tensors[module + ".weight"].bytes[b] &= std::byte{0xbf};
      }
    }
  }
  return f;
}

// Packs, unpacks with qpn's inverse and compares every byte and scale with the file.
void expect_round_trip(quant_class cls, std::vector<std::int64_t> const& rows, std::int64_t k,
                       qpn::scale_mode expected_mode) {
  std::mt19937 random(static_cast<unsigned>(rows.size() * 1000 + static_cast<std::size_t>(k)));
  checkpoint_fixture const f = random_parts(cls, rows, k, random);
  temp_directory const dir;
  f.write(dir.path());
  repository tensors(dir.path());
  std::vector<linear_view> linears;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    linears.push_back(find_linear(tensors, "p" + std::to_string(i), rows[i], k));
  }
  packed_matrix const matrix = pack(linears);
  EXPECT_EQ(matrix.weight().layout.scale, expected_mode);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.weight().data) % 64, 0u);

  std::vector<std::vector<std::byte>> codes;
  std::vector<std::vector<std::byte>> block_scales;
  std::vector<std::vector<float>> channel_scales;
  std::vector<float> scales(rows.size());
  std::vector<qpn::unpacked_part> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    codes.emplace_back(linears[i].codes.size());
    block_scales.emplace_back(linears[i].block_scales.size());
    channel_scales.emplace_back(static_cast<std::size_t>(rows[i]));
    parts.push_back({rows[i], codes[i].data(),
                     block_scales[i].empty() ? nullptr : block_scales[i].data(), &scales[i],
                     channel_scales[i].data()});
  }
  qpn::status const unpacked = qpn::unpack(matrix.weight(), parts.data(), parts.size());
  ASSERT_TRUE(unpacked.ok()) << unpacked.what;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("part " + std::to_string(i));
    std::string const module = "p" + std::to_string(i);
    float const scale = static_cast<float>(i + 1) * 0x1p-9f;
    EXPECT_EQ(codes[i], f.tensors.at(module + ".weight").bytes);
    if (cls == quant_class::nvfp4) {
      EXPECT_EQ(block_scales[i], f.tensors.at(module + ".weight_scale").bytes);
    }
    if (expected_mode == qpn::scale_mode::tensor) {
      EXPECT_EQ(scales[i], scale);
    }
    if (expected_mode == qpn::scale_mode::channel) {
      EXPECT_EQ(channel_scales[i], std::vector<float>(static_cast<std::size_t>(rows[i]), scale));
    }
  }
}

TEST(pack, keeps_every_byte_and_each_part_s_own_scale) {
  using qpn::scale_mode;
  for (quant_class const cls : {quant_class::nvfp4, quant_class::fp8_tensor}) {
    SCOPED_TRACE(to_string(cls));
    expect_round_trip(cls, {64}, 32, scale_mode::tensor);
    expect_round_trip(cls, {1}, 16, scale_mode::tensor);
    expect_round_trip(cls, {64, 32, 96}, 48, scale_mode::tensor);
    expect_round_trip(cls, {32, 7}, 32,
                      scale_mode::tensor);  // only the last part ends inside a tile
    expect_round_trip(cls, {48, 48, 5}, 32, scale_mode::channel);  // two scales in one tile
  }
  expect_round_trip(quant_class::bf16, {48, 48}, 24, scale_mode::none);
  expect_round_trip(quant_class::f16, {4, 4}, 64, scale_mode::none);
}

TEST(pack, refuses_what_does_not_fuse) {
  checkpoint_fixture f;
  f.add_nvfp4("four", 32, 32);
  f.add_fp8("eight", 32, 32);
  f.add("dense.weight", storage_dtype::bf16, {32, 32});
  f.add("half.weight", storage_dtype::f16, {32, 32});
  f.add("wide.weight", storage_dtype::bf16, {32, 64});
  temp_directory const dir;
  f.write(dir.path());
  repository tensors(dir.path());
  auto const fuse = [&](std::string const& a, std::string const& b) {
    std::int64_t const b_inputs = b == "wide" ? 64 : 32;
    std::vector<linear_view> const both = {find_linear(tensors, a, 32, 32),
                                           find_linear(tensors, b, 32, b_inputs)};
    return error_of([&] { (void)pack(both); });
  };
  EXPECT_EQ(fuse("four", "eight"),
            "linears \"four\" and \"eight\" are stored as nvfp4 and fp8_tensor, so they cannot be "
            "packed as one matrix");
  EXPECT_EQ(fuse("dense", "half"),
            "linears \"dense\" and \"half\" are stored as bf16 and f16, so they cannot be packed "
            "as one matrix");
  EXPECT_EQ(fuse("dense", "wide"),
            "linears \"dense\" and \"wide\" have 32 and 64 inputs, so they cannot be packed as one "
            "matrix");
  EXPECT_EQ(error_of([&] { (void)pack({}); }), "packing needs at least one linear");
}

TEST(pack, names_module_row_and_column_of_a_nan) {
  std::mt19937 random(1);
  checkpoint_fixture f = random_parts(quant_class::fp8_tensor, {32, 32}, 32, random);
  f.tensors["p1.weight"].bytes[5 * 32 + 7] = std::byte{0xff};
  temp_directory const dir;
  f.write(dir.path());
  repository tensors(dir.path());
  std::vector<linear_view> const both = {find_linear(tensors, "p0", 32, 32),
                                         find_linear(tensors, "p1", 32, 32)};
  std::string const sentence = error_of([&] { (void)pack(both); });
  EXPECT_EQ(sentence.rfind("linear \"p1\": ", 0), 0u) << sentence;
  EXPECT_NE(sentence.find("NaN"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(", row 5, column 7"), std::string::npos) << sentence;
}

TEST(pack, refuses_a_linear_without_data) {
  checkpoint_fixture f;
  f.add_fp8("m", 32, 32);
  temp_directory const dir;
  f.write_headers_only(dir.path());
  repository tensors(dir.path(), open_mode::headers_only);
  std::vector<linear_view> const one = {find_linear(tensors, "m", 32, 32)};
  EXPECT_EQ(error_of([&] { (void)pack(one); }),
            "linear \"m\" has no bytes: only its header was opened");
}

}  // namespace
}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <qpn/cpu/gemm.hpp>
#include <qpn/reference/dequant.hpp>
#include <vector>

#include "support/published_weight.hpp"
#include "support/random.hpp"

namespace {

using qpn::dtype;
using qpn::format_id;
using qpn::packed_weight;
using qpn::scale_mode;
using qpn::status;
using qpn::status_code;
using qpn::cpu::gemm_args;
using qpn::cpu::isa;
using qpn::cpu::thread_pool;
using qpn::test::all_weight_kinds;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::weight_kind;

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<isa> available_isas() {
  std::vector<isa> sets{isa::scalar};
  if (qpn::cpu::best_isa() == isa::avx2) sets.push_back(isa::avx2);
  return sets;
}

/// Rows of activations or results in one of the element types, row-major with a stride.
class matrix {
 public:
  matrix(dtype type, std::int64_t rows, std::int64_t columns, std::int64_t ld, float fill)
      : type_(type),
        rows_(rows),
        columns_(columns),
        ld_(ld),
        bytes_(static_cast<std::size_t>(rows * ld) * size()) {
    for (std::int64_t i = 0; i < rows * ld; ++i) write(i, fill);
  }

  [[nodiscard]] dtype type() const { return type_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t ld() const { return ld_; }
  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] void const* data() const { return bytes_.data(); }

  void set(std::int64_t row, std::int64_t column, float value) { write(row * ld_ + column, value); }

  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    std::byte const* const from =
        bytes_.data() + static_cast<std::size_t>(row * ld_ + column) * size();
    if (type_ == dtype::f32) {
      float value = 0.0f;
      std::memcpy(&value, from, sizeof value);
      return value;
    }
    std::uint16_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return type_ == dtype::f16 ? qpn::decode_f16(word) : qpn::decode_bf16(word);
  }

  /// The bytes of the first `columns` elements of a row.
  [[nodiscard]] std::vector<std::byte> row_bytes(std::int64_t row) const {
    auto const from =
        bytes_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row * ld_) * size());
    return {from, from + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(columns_) * size())};
  }

  void copy_row(std::int64_t row, matrix const& from, std::int64_t from_row) {
    std::vector<std::byte> const bytes = from.row_bytes(from_row);
    std::memcpy(bytes_.data() + static_cast<std::size_t>(row * ld_) * size(), bytes.data(),
                bytes.size());
  }

 private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(qpn::bits(type_)) / 8; }

  void write(std::int64_t index, float value) {
    std::byte* const to = bytes_.data() + static_cast<std::size_t>(index) * size();
    if (type_ == dtype::f32) {
      std::memcpy(to, &value, sizeof value);
      return;
    }
    std::uint16_t const word =
        type_ == dtype::f16 ? qpn::encode_f16(value) : qpn::encode_bf16(value);
    std::memcpy(to, &word, sizeof word);
  }

  dtype type_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t ld_;
  std::vector<std::byte> bytes_;
};

matrix random_matrix(dtype type, std::int64_t rows, std::int64_t columns, std::int64_t ld,
                     random_source& random) {
  // What lies between the rows must never be read: NaN would spread.
  matrix x(type, rows, columns, ld, std::nanf(""));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) x.set(row, column, random.normal());
  }
  return x;
}

gemm_args args_of(matrix const& x, matrix& y) {
  gemm_args args;
  args.x = x.data();
  args.x_type = x.type();
  args.m = x.rows();
  args.ldx = x.ld();
  args.y = y.data();
  args.y_type = y.type();
  args.ldy = y.ld();
  return args;
}

void run(packed_weight const& weight, matrix const& x, matrix& y, thread_pool& pool, isa path,
         bool accumulate = false) {
  gemm_args args = args_of(x, y);
  args.path = path;
  args.accumulate = accumulate;
  status const done = qpn::cpu::gemm(weight, args, pool);
  ASSERT_TRUE(done.ok()) << done.what;
}

/// Compares y with addend + x w^T in fp64. The bound: a chain of at most 64 fused multiply-adds, k
/// / 64 additions of chains, the scale and the result type, with block scales k / 128 additions of
/// their stretches, each at most half a unit of the sum of magnitudes.
void expect_near_reference(published_weight const& weight, matrix const& x, matrix const& y,
                           float addend) {
  std::vector<qpn::weight_part> const parts = weight.views();
  std::int64_t const n = weight.layout().n;
  std::int64_t const k = weight.layout().k;
  std::vector<double> w(static_cast<std::size_t>(n * k));
  qpn::reference::dequant(weight.layout(), parts.data(), parts.size(), w.data());
  std::int64_t roundings = (std::min)(k, std::int64_t{64}) + (k + 63) / 64 + 2;
  if (weight.layout().scale == scale_mode::block) roundings += (k + 127) / 128;
  double const sum_error = static_cast<double>(roundings) * 0x1p-24;
  double const type_error = y.type() == dtype::f32   ? 0.0
                            : y.type() == dtype::f16 ? 0x1p-11
                                                     : 0x1p-8;
  double const smallest = y.type() == dtype::f16 ? 0x1p-24 : 0x1p-126;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = static_cast<double>(addend);
      double magnitude = std::fabs(sum);
      for (std::int64_t i = 0; i < k; ++i) {
        double const product =
            static_cast<double>(x.at(row, i)) * w[static_cast<std::size_t>(column * k + i)];
        sum += product;
        magnitude += std::fabs(product);
      }
      double const limit = magnitude * sum_error + std::fabs(sum) * type_error * 1.001 + smallest;
      // A sum that rounds beyond fp16 saturates.
      if (y.type() == dtype::f16) sum = (std::max)(-65504.0, (std::min)(65504.0, sum));
      ASSERT_LE(std::fabs(static_cast<double>(y.at(row, column)) - sum), limit)
          << "row " << row << ", column " << column << ", expected " << sum << ", got "
          << y.at(row, column);
    }
  }
}

std::vector<std::int64_t> ragged_rows(scale_mode scale, random_source& random) {
  switch (random.integer(0, 3)) {
    case 0: return {random.integer(1, 100)};
    case 1: return {32, random.integer(1, 31)};
    case 2: return {64, 32, 32};
    default: break;
  }
  if (scale == scale_mode::block) return {160, 131};
  return scale == scale_mode::tensor ? std::vector<std::int64_t>{96, 1}
                                     : std::vector<std::int64_t>{7, 1, 30};
}

}  // namespace

TEST(cpu_gemm, agrees_with_fp64_on_ragged_shapes_and_types) {
  dtype const types[] = {dtype::f32, dtype::f16, dtype::bf16};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    random_source random(seed);
    thread_pool pool(static_cast<int>(random.integer(1, 4)));
    for (weight_kind const kind : all_weight_kinds) {
      for (isa const path : available_isas()) {
        std::int64_t const k =
            kind.format == format_id::nvfp4 ? 16 * random.integer(1, 13) : random.integer(1, 290);
        std::int64_t const m = random.integer(1, 12);
        published_weight weight(kind, ragged_rows(kind.scale, random), k, random);
        packed_weight const packed = weight.pack(static_cast<std::size_t>(random.integer(0, 3)));
        matrix const x =
            random_matrix(types[random.integer(0, 2)], m, k, k + random.integer(0, 5), random);
        std::int64_t const n = weight.layout().n;
        matrix y(types[random.integer(0, 2)], m, n, n + random.integer(0, 5), -7.0f);
        SCOPED_TRACE(testing::Message()
                     << kind << " " << qpn::cpu::to_string(path) << " m " << m << " n " << n
                     << " k " << k << ", x " << qpn::to_string(x.type()) << ", y "
                     << qpn::to_string(y.type()) << ", seed " << seed);
        run(packed, x, y, pool, path);
        expect_near_reference(weight, x, y, 0.0f);
        for (std::int64_t row = 0; row < m; ++row) {
          for (std::int64_t column = n; column < y.ld(); ++column)
            ASSERT_EQ(y.at(row, column), -7.0f) << "written past n";
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(cpu_gemm, agrees_with_fp64_on_minimal_and_block_border_shapes) {
  thread_pool pool(2);
  random_source random(77);
  for (weight_kind const kind : all_weight_kinds) {
    for (std::int64_t const k : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257}) {
      if (kind.format == format_id::nvfp4 && k % 16 != 0) continue;
      for (std::int64_t const n : {1, 31, 32, 33}) {
        published_weight weight(kind, {n}, k, random);
        packed_weight const packed = weight.pack();
        for (isa const path : available_isas()) {
          matrix const x = random_matrix(dtype::f32, 2, k, k, random);
          matrix y(dtype::f32, 2, n, n, 0.0f);
          SCOPED_TRACE(testing::Message()
                       << kind << " " << qpn::cpu::to_string(path) << " n " << n << " k " << k);
          run(packed, x, y, pool, path);
          expect_near_reference(weight, x, y, 0.0f);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(cpu_gemm, agrees_with_fp64_beyond_one_chunk_of_rows) {
  thread_pool pool(2);
  random_source random(78);
  for (scale_mode const scale : {scale_mode::tensor, scale_mode::block}) {
    published_weight weight({format_id::fp8, scale, dtype::f16}, {32, 3}, 170, random);
    packed_weight const packed = weight.pack();
    for (isa const path : available_isas()) {
      matrix const x = random_matrix(dtype::f16, 150, 170, 171, random);
      matrix y(dtype::f32, 150, 35, 35, 0.0f);
      run(packed, x, y, pool, path);
      expect_near_reference(weight, x, y, 0.0f);
    }
  }
}

TEST(cpu_gemm, every_e2m1_code_under_every_block_scale_is_exact) {
  random_source random(79);
  published_weight weight({format_id::nvfp4, scale_mode::tensor, dtype::f16}, {256}, 16, random);
  qpn::test::published_part& part = weight.parts().front();
  part.global_scale = 1.0f;
  for (std::size_t row = 0; row < 256; ++row) {
    part.block_scales[row] = static_cast<std::uint8_t>(row % 128 == 127 ? 0 : row);
    for (std::size_t pair = 0; pair < 8; ++pair)
      part.codes[row * 8 + pair] = static_cast<std::uint8_t>(0x10 + 0x22 * pair);
  }
  packed_weight const packed = weight.pack();
  matrix identity(dtype::f32, 16, 16, 16, 0.0f);
  for (std::int64_t k = 0; k < 16; ++k) identity.set(k, k, 1.0f);
  thread_pool pool(1);
  for (isa const path : available_isas()) {
    matrix y(dtype::f32, 16, 256, 256, 0.0f);
    run(packed, identity, y, pool, path);
    for (std::int64_t k = 0; k < 16; ++k) {
      for (std::int64_t row = 0; row < 256; ++row) {
        // Code k is at position k: byte 0x10 + 0x22 p holds 2 p below and 2 p + 1 above.
        double const expected =
            static_cast<double>(qpn::decode_e2m1(static_cast<std::uint8_t>(k))) *
            static_cast<double>(qpn::decode_e4m3(part.block_scales[static_cast<std::size_t>(row)]));
        ASSERT_EQ(static_cast<double>(y.at(k, row)), expected) << "code " << k << ", scale " << row;
      }
    }
  }
}

TEST(cpu_gemm, every_finite_code_of_the_wider_formats_is_exact) {
  thread_pool pool(1);
  for (weight_kind const kind : {weight_kind{format_id::fp8, scale_mode::tensor, dtype::f16},
                                 weight_kind{format_id::dense16, scale_mode::none, dtype::f16},
                                 weight_kind{format_id::dense16, scale_mode::none, dtype::bf16}}) {
    random_source random(80);
    bool const is_fp8 = kind.format == format_id::fp8;
    std::int64_t const n = is_fp8 ? 256 : 65536;
    published_weight weight(kind, {n}, 1, random);
    qpn::test::published_part& part = weight.parts().front();
    part.global_scale = 1.0f;
    std::uint32_t const special = is_fp8 ? 0x7f : kind.dense_type == dtype::f16 ? 0x7c00 : 0x7f80;
    std::vector<float> expected;
    for (std::uint32_t code = 0; code < n; ++code) {
      std::uint32_t const word = (code & special) == special ? 0 : code;
      if (is_fp8) {
        part.codes[code] = static_cast<std::uint8_t>(word);
        expected.push_back(qpn::decode_e4m3(static_cast<std::uint8_t>(word)));
        continue;
      }
      part.codes[2 * code] = static_cast<std::uint8_t>(word);
      part.codes[2 * code + 1] = static_cast<std::uint8_t>(word >> 8);
      expected.push_back(kind.dense_type == dtype::f16
                             ? qpn::decode_f16(static_cast<std::uint16_t>(word))
                             : qpn::decode_bf16(static_cast<std::uint16_t>(word)));
    }
    packed_weight const packed = weight.pack();
    matrix const one(dtype::f32, 1, 1, 1, 1.0f);
    for (isa const path : available_isas()) {
      matrix y(dtype::f32, 1, n, n, 0.0f);
      run(packed, one, y, pool, path);
      for (std::int64_t row = 0; row < n; ++row) {
        ASSERT_EQ(y.at(0, row), expected[static_cast<std::size_t>(row)])
            << kind << ", code " << row;
      }
    }
  }
}

TEST(cpu_gemm, sums_in_the_documented_order) {
  thread_pool pool(3);
  for (weight_kind const kind : all_weight_kinds) {
    random_source random(81);
    constexpr std::int64_t k = 208;
    published_weight weight(kind, {32, 9}, k, random);
    packed_weight const packed = weight.pack();
    matrix const x = random_matrix(dtype::f32, 2, k, k, random);
    for (isa const path : available_isas()) {
      matrix y(dtype::f32, 2, 41, 41, 0.5f);
      run(packed, x, y, pool, path, true);
      for (std::int64_t row = 0; row < 2; ++row) {
        for (std::int64_t column = 0; column < 41; ++column) {
          auto const& part = weight.parts()[column < 32 ? 0 : 1];
          std::int64_t const part_row = column % 32;
          bool const by_block = kind.scale == scale_mode::block;
          float const scale = kind.scale == scale_mode::none || by_block ? 1.0f
                              : kind.scale == scale_mode::tensor
                                  ? part.global_scale
                                  : part.channel_scales[static_cast<std::size_t>(part_row)];
          // Exact weights without their scale: the same matrix with scale 1.
          qpn::weight_part unscaled = weight.views()[column < 32 ? 0 : 1];
          unscaled.global_scale = 1.0f;
          unscaled.channel_scales = nullptr;
          unscaled.scale_blocks = nullptr;
          float total = 0.0f;
          float sum = 0.0f;
          for (std::int64_t block = 0; block < k; block += 64) {
            float chain = 0.0f;
            for (std::int64_t i = block; i < (std::min)(block + 64, k); ++i) {
              chain = std::fma(x.at(row, i),
                               static_cast<float>(
                                   qpn::reference::weight_at(packed.layout, unscaled, part_row, i)),
                               chain);
            }
            total += chain;
            if (!by_block || (block % 128 == 0 && block + 64 < k)) continue;
            sum = std::fma(total, part.scale_blocks[static_cast<std::size_t>(block / 128)], sum);
            total = 0.0f;
          }
          float const expected = std::fma(by_block ? sum : total, scale, 0.5f);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(row, column)),
                    std::bit_cast<std::uint32_t>(expected))
              << kind << " " << qpn::cpu::to_string(path) << " row " << row << " column " << column;
        }
      }
    }
  }
}

namespace {

/// A row that must not disturb its neighbours: NaN, infinities, or the largest fp16 values with
/// alternating signs.
void set_hostile_row(matrix& x, std::int64_t row, std::int64_t columns, std::int64_t choice) {
  for (std::int64_t i = 0; i < columns; ++i) {
    float const sign = i % 2 == 0 ? 1.0f : -1.0f;
    float const value = choice == 0 ? std::nanf("") : choice == 1 ? sign * infinity : sign * 6e4f;
    x.set(row, i, value);
  }
}

/// Checks that rows keep the bits that they have alone, on the scalar path and one thread, in every
/// company.
void check_row_independence(weight_kind kind, dtype x_type, dtype y_type, std::uint64_t seed) {
  random_source random(seed);
  std::int64_t const k = 16 * random.integer(4, 13);
  published_weight weight(kind, {64, random.integer(1, 70)}, k, random);
  packed_weight const packed = weight.pack();
  std::int64_t const n = weight.layout().n;
  constexpr std::int64_t max_m = 40;
  matrix source = random_matrix(x_type, max_m, k, k, random);
  for (std::int64_t row = 3; row < max_m; row += 4) set_hostile_row(source, row, k, row / 4 % 3);

  thread_pool alone(1);
  std::vector<std::vector<std::byte>> golden;
  for (std::int64_t row = 0; row < max_m; ++row) {
    matrix x(x_type, 1, k, k, 0.0f);
    matrix y(y_type, 1, n, n, 0.0f);
    x.copy_row(0, source, row);
    run(packed, x, y, alone, isa::scalar);
    golden.push_back(y.row_bytes(0));
  }
  thread_pool pools[] = {thread_pool(1), thread_pool(2), thread_pool(5)};
  for (std::int64_t m = 1; m <= max_m; ++m) {
    std::int64_t const shift = random.integer(0, max_m - 1);
    std::int64_t const ld = k + random.integer(0, 3);
    matrix x(x_type, m, k, ld, std::nanf(""));
    for (std::int64_t row = 0; row < m; ++row) x.copy_row(row, source, (row * 7 + shift) % max_m);
    thread_pool& pool = pools[m % 3];
    for (isa const path : available_isas()) {
      matrix y(y_type, m, n, n + m % 2, 0.0f);
      run(packed, x, y, pool, path);
      for (std::int64_t row = 0; row < m; ++row) {
        std::int64_t const from = (row * 7 + shift) % max_m;
        ASSERT_EQ(y.row_bytes(row), golden[static_cast<std::size_t>(from)])
            << kind << " " << qpn::cpu::to_string(path) << " threads " << pool.size() << " m " << m
            << " row " << row << " (source row " << from << "), x " << qpn::to_string(x_type)
            << ", y " << qpn::to_string(y_type) << ", seed " << seed;
      }
    }
  }
}

}  // namespace

TEST(cpu_gemm, a_row_has_the_same_bits_whatever_m_position_company_threads_and_isa) {
  std::uint64_t seed = 900;
  for (weight_kind const kind : all_weight_kinds) {
    for (dtype const x_type : {dtype::f32, dtype::f16, dtype::bf16}) {
      dtype const y_type = x_type == dtype::bf16 ? dtype::f16 : dtype::f32;
      check_row_independence(kind, x_type, y_type, ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(cpu_gemm, accumulation_adds_to_y_and_keeps_rows_independent) {
  random_source random(83);
  published_weight weight({format_id::nvfp4, scale_mode::channel, dtype::f16}, {50}, 96, random);
  packed_weight const packed = weight.pack();
  thread_pool pool(2);
  matrix const x = random_matrix(dtype::f32, 9, 96, 96, random);
  matrix whole(dtype::f32, 9, 50, 50, 1.5f);
  run(packed, x, whole, pool, isa::automatic, true);
  expect_near_reference(weight, x, whole, 1.5f);
  for (isa const path : available_isas()) {
    for (std::int64_t row = 0; row < 9; ++row) {
      matrix one_x(dtype::f32, 1, 96, 96, 0.0f);
      matrix one_y(dtype::f32, 1, 50, 50, 1.5f);
      one_x.copy_row(0, x, row);
      run(packed, one_x, one_y, pool, path, true);
      EXPECT_EQ(one_y.row_bytes(0), whole.row_bytes(row));
    }
  }
}

TEST(cpu_gemm, f16_results_saturate_but_infinities_and_nan_stay) {
  random_source random(84);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {1}, 1, random);
  weight.parts().front().codes = {0x38};
  weight.parts().front().global_scale = 1.0f;
  packed_weight const packed = weight.pack();
  thread_pool pool(1);
  float const values[] = {65504.0f, 65519.0f,  65520.0f,      -1e30f,
                          infinity, -infinity, -std::nanf("")};
  std::uint16_t const expected_f16[] = {0x7bff, 0x7bff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00};
  std::uint16_t const expected_bf16[] = {0x4780, 0x4780, 0x4780, 0xf14a, 0x7f80, 0xff80, 0x7fc0};
  matrix x(dtype::f32, 7, 1, 1, 0.0f);
  for (std::int64_t row = 0; row < 7; ++row) x.set(row, 0, values[row]);
  for (isa const path : available_isas()) {
    for (dtype const type : {dtype::f16, dtype::bf16}) {
      matrix y(type, 7, 1, 1, 0.0f);
      run(packed, x, y, pool, path);
      for (std::int64_t row = 0; row < 7; ++row) {
        std::uint16_t word = 0;
        std::memcpy(&word, y.row_bytes(row).data(), sizeof word);
        EXPECT_EQ(word, (type == dtype::f16 ? expected_f16 : expected_bf16)[row])
            << "value " << values[row];
      }
    }
  }
}

TEST(cpu_gemm, every_nan_is_written_as_the_same_quiet_nan) {
  random_source random(85);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {40}, 3, random);
  packed_weight const packed = weight.pack();
  thread_pool pool(1);
  for (isa const path : available_isas()) {
    for (std::uint32_t const bits : {0x7fc00000u, 0xffc12345u, 0x7f800001u}) {
      matrix x(dtype::f32, 1, 3, 3, 1.0f);
      x.set(0, 1, std::bit_cast<float>(bits));
      matrix y(dtype::f32, 1, 40, 40, 0.0f);
      run(packed, x, y, pool, path);
      for (std::int64_t i = 0; i < 40; ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(0, i)), 0x7fc00000u);
    }
  }
}

TEST(cpu_gemm, row_strides_may_be_huge) {
  random_source random(86);
  published_weight weight({format_id::fp8, scale_mode::channel, dtype::f16}, {5}, 20, random);
  packed_weight const packed = weight.pack();
  thread_pool pool(1);
  matrix const narrow = random_matrix(dtype::f32, 3, 20, 20, random);
  matrix wide(dtype::f32, 3, 20, 1 << 20, std::nanf(""));
  for (std::int64_t row = 0; row < 3; ++row) wide.copy_row(row, narrow, row);
  matrix y_narrow(dtype::f32, 3, 5, 5, 0.0f);
  matrix y_wide(dtype::f32, 3, 5, 1 << 20, 0.0f);
  run(packed, narrow, y_narrow, pool, isa::automatic);
  run(packed, wide, y_wide, pool, isa::automatic);
  for (std::int64_t row = 0; row < 3; ++row)
    EXPECT_EQ(y_wide.row_bytes(row), y_narrow.row_bytes(row));
}

TEST(cpu_gemm, no_rows_is_not_an_error_and_touches_nothing) {
  random_source random(87);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {5}, 20, random);
  packed_weight const packed = weight.pack();
  thread_pool pool(2);
  EXPECT_TRUE(qpn::cpu::gemm(packed, gemm_args{}, pool).ok());
}

TEST(cpu_gemm, arguments_that_cannot_be_served_are_refused_before_anything_is_written) {
  random_source random(88);
  published_weight weight({format_id::fp8, scale_mode::tensor, dtype::f16}, {5}, 20, random);
  packed_weight const packed = weight.pack();
  thread_pool pool(1);
  std::vector<float> x(3 * 20, 1.0f);
  std::vector<float> y(3 * 5, 42.0f);
  gemm_args good;
  good.x = x.data();
  good.m = 3;
  good.ldx = 20;
  good.y = y.data();
  good.ldy = 5;
  auto const refused = [&](status_code code, auto change, packed_weight const& w) {
    gemm_args args = good;
    change(args);
    EXPECT_EQ(qpn::cpu::gemm(w, args, pool).code, code);
    for (float const value : y) EXPECT_EQ(value, 42.0f);
  };
  constexpr std::int64_t huge = (std::numeric_limits<std::int64_t>::max)();
  refused(
      status_code::invalid_shape, [](gemm_args& a) { a.m = -1; }, packed);
  refused(
      status_code::invalid_shape, [](gemm_args& a) { a.ldx = 19; }, packed);
  refused(
      status_code::invalid_shape, [](gemm_args& a) { a.ldy = 4; }, packed);
  refused(
      status_code::invalid_shape, [](gemm_args& a) { a.ldx = huge / 4; }, packed);
  refused(
      status_code::invalid_shape, [](gemm_args& a) { a.ldy = huge / 11; }, packed);
  refused(
      status_code::invalid_value, [](gemm_args& a) { a.x = nullptr; }, packed);
  refused(
      status_code::invalid_value, [](gemm_args& a) { a.y = nullptr; }, packed);
  refused(
      status_code::unsupported_format, [](gemm_args& a) { a.x_type = dtype::e4m3; }, packed);
  refused(
      status_code::unsupported_format, [](gemm_args& a) { a.y_type = dtype::e8m0; }, packed);
  refused(
      status_code::unsupported_format,
      [](gemm_args& a) {
        a.y_type = dtype::f16;
        a.accumulate = true;
      },
      packed);
  refused(
      status_code::misaligned, [](gemm_args& a) { a.x = static_cast<char const*>(a.x) + 2; },
      packed);
  refused(
      status_code::misaligned, [](gemm_args& a) { a.y = static_cast<char*>(a.y) + 1; }, packed);
  packed_weight foreign = packed;
  foreign.layout.version = 2;
  refused(
      status_code::invalid_value, [](gemm_args&) {}, foreign);
  refused(
      status_code::invalid_value, [](gemm_args&) {}, packed_weight{packed.layout, nullptr});
  refused(
      status_code::invalid_value, [](gemm_args&) {}, packed_weight{});
  if (qpn::cpu::best_isa() != isa::avx2) {
    refused(
        status_code::unsupported_arch, [](gemm_args& a) { a.path = isa::avx2; }, packed);
  }
}

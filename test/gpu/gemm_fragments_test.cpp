// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/x_fragments.hpp>
#include <string>
#include <vector>

#include "gpu/gemm_call.hpp"
#include "support/fragment_rows.hpp"

// x in fragment order gives the bits of the same x in rows, which are held to their bound
// elsewhere.

namespace qpn::test {
namespace {

constexpr weight_kind fp8_tensor{format_id::fp8, scale_mode::tensor, dtype::f16};
constexpr weight_kind fp8_channel{format_id::fp8, scale_mode::channel, dtype::f16};
constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};

class gpu_x_fragments : public testing::Test {
 protected:
  void SetUp() override {
    if (tested_layout() != layout_id::sm80_mma16) {
      GTEST_SKIP() << "x in fragment order needs layout sm80_mma16";
    }
  }
};

/// x of a call in fragment order in device memory that ends with its last row tile, NaN in all rows
/// that the call has not.
class device_fragments {
 public:
  device_fragments(gemm_operands const& operands, std::int64_t k)
      : memory_(static_cast<std::size_t>(x_fragments_count(operands.m, k)) * 2) {
    std::vector<std::uint16_t> x(memory_.size() / 2, 0xffff);
    copy_to_fragments(operands.x.data(), k, operands.m, k, x.data());
    memory_.upload(x);
  }

  /// Makes a call read it.
  void give_to(gemm_args& args) const {
    args.x = memory_.data();
    args.ldx = 0;
    args.order = x_order::fragments;
  }

 private:
  device_memory memory_;
};

[[nodiscard]] gemm_result run_fragments(gpu_gemm const& gemm, gemm_operands const& operands,
                                        bool overlaps = false) {
  device_fragments const x(operands, gemm.weight().layout().k);
  gpu_call call(gemm, operands);
  x.give_to(call.args());
  call.args().overlap_previous = overlaps;
  device_stream const stream;
  call.launch(stream.get());
  if (overlaps) call.launch(stream.get());  // behind itself, on the same x
  stream.wait();
  return call.result();
}

// n is ragged. On an H200 6, 128 and 162 strips are halved, the last with fewer registers; 270 not.
TEST_F(gpu_x_fragments, give_the_bits_of_rows) {
  std::uint64_t seed = 300;
  for (weight_kind const kind : {fp8_tensor, fp8_channel}) {
    for (std::int64_t const n : {130, 4096 - 30, 5120 + 33, 8192 + 400}) {
      for (std::int64_t const k : {128, 640, 1536}) {
        random_source random(seed);
        gpu_weight const weight = random_weight(kind, n, k, random);
        gemm_problem problem;
        problem.y_type = seed % 3 == 0 ? dtype::f32 : seed % 3 == 1 ? dtype::f16 : dtype::bf16;
        gpu_gemm const gemm(weight, problem);
        for (std::int64_t const m : {1, 3, 8, 9, 16}) {
          gemm_operands const operands = random_operands(weight, m, random);
          std::vector<std::uint32_t> const expected = run(gemm, operands).y;
          EXPECT_EQ(run_fragments(gemm, operands).y, expected)
              << kind << " n " << n << " k " << k << " m " << m << " seed " << seed;
          EXPECT_EQ(run_fragments(gemm, operands, true).y, expected)
              << kind << " n " << n << " k " << k << " m " << m << " overlapping, seed " << seed;
        }
        ++seed;
      }
    }
  }
}

TEST_F(gpu_x_fragments, give_the_bits_of_rows_with_the_shapes_of_the_model) {
  struct shape {
    char const* name;
    std::int64_t n;
    std::int64_t k;
  };
  for (shape const tested : {shape{"tp1.gdn_out", 5120, 6144}, shape{"tp4.gdn_in", 4096, 5120},
                             shape{"tp4.gdn_out", 5120, 1536}, shape{"tp4.attn_qkv", 3584, 5120}}) {
    random_source random(330);
    gpu_weight const weight = random_weight(fp8_channel, tested.n, tested.k, random);
    gpu_gemm const gemm(weight, f32_problem());
    for (std::int64_t const m : {1, 3, 8, 9, 16}) {
      gemm_operands operands = random_operands(weight, m, random);
      operands.residual = random_values(m * tested.n, dtype::f32, random);
      EXPECT_EQ(run_fragments(gemm, operands).y, run(gemm, operands).y)
          << tested.name << " m " << m;
    }
  }
}

TEST_F(gpu_x_fragments, take_every_epilogue) {
  std::uint64_t seed = 340;
  for (weight_kind const kind : {fp8_tensor, fp8_channel}) {
    for (activation const act : {activation::none, activation::silu_gate}) {
      for (dtype const residual_type : {dtype::f16, dtype::bf16, dtype::f32}) {
        for (bool const in_place : {false, true}) {
          random_source random(seed);
          gpu_weight const weight = random_weight(kind, 320, 512, random);
          gemm_problem problem;
          problem.y_type = residual_type;
          problem.act = act;
          gpu_gemm const gemm(weight, problem);
          for (std::int64_t const m : {2, 8, 11, 16}) {
            gemm_operands operands = random_operands(weight, m, random);
            operands.bias = random.normals(320);
            operands.residual = random_values(m * gemm.columns(), residual_type, random);
            operands.residual_type = residual_type;
            operands.in_place = in_place;
            EXPECT_EQ(run_fragments(gemm, operands).y, run(gemm, operands).y)
                << kind << " m " << m << " seed " << seed;
          }
          ++seed;
        }
      }
    }
  }
}

TEST_F(gpu_x_fragments, are_refused_before_anything_is_launched) {
  random_source random(350);
  for (weight_kind const kind : {nvfp4_tensor, fp8_tensor}) {
    bool const with_nvfp4 = kind.format == format_id::nvfp4;
    std::int64_t const k = with_nvfp4 ? 256 : 192;
    gpu_weight const weight = random_weight(kind, 64, k, random);
    gpu_gemm const gemm(weight, f32_problem());
    gpu_call call(gemm, random_operands(weight, 1, random));
    gemm_census census;
    call.args().census = &census;
    call.args().order = x_order::fragments;
    device_stream const stream;
    status const refused = gemm.launch(call.args(), stream.get());
    EXPECT_EQ(refused.code,
              with_nvfp4 ? status_code::unsupported_format : status_code::invalid_shape);
    EXPECT_EQ(std::string(refused.what).rfind("gemm: x in fragment order needs ", 0), 0U);
    stream.wait();
    EXPECT_EQ(call.result().y, std::vector<std::uint32_t>(64, 0xffffffffu));
    EXPECT_EQ(census.launches(gemm.route_of(1)), 0U);
  }
}

}  // namespace
}  // namespace qpn::test

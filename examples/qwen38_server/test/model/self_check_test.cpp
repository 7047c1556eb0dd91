// SPDX-License-Identifier: Apache-2.0
#include "model/self_check.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <qpn/dtype.hpp>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/cpu_backend.hpp"
#include "ops/profiled_backend.hpp"
#include "support/error.hpp"

namespace qwen38::model {
namespace {

/// An FP8 matrix as it is published.
struct fp8_matrix {
  fp8_matrix(std::int64_t n, std::int64_t k, std::uint32_t seed)
      : codes(static_cast<std::size_t>(n * k)) {
    std::mt19937 random(seed);
    for (std::uint8_t& code : codes) {
      code = qpn::encode_e4m3(static_cast<float>(static_cast<int>(random() % 65) - 32) / 16.0F);
    }
    part.n = n;
    part.codes = codes.data();
    part.global_scale = 0.03F;
    source.name = "tested";
    source.format = qpn::format_id::fp8;
    source.scales = qpn::scale_mode::tensor;
    source.k = k;
    source.parts = {&part, 1};
  }
  std::vector<std::uint8_t> codes;
  qpn::weight_part part{};
  ops::linear_source source;
};

TEST(self_check, passes_what_is_packed_as_published) {
  auto const backend = ops::cpu::make_backend(2);
  for (auto const& [n, k] : {std::pair{1, 16}, {70, 48}, {256, 512}}) {
    fp8_matrix matrix(n, k, 5);
    auto const packed = backend->make_linear(matrix.source);
    EXPECT_LE(check_product(*backend, *packed, matrix.source), 1.0) << n << " x " << k;
    if (n % 2 != 0) continue;
    matrix.source.use = ops::linear_use::gate_up;
    auto const gated = backend->make_linear(matrix.source);
    EXPECT_LE(check_product(*backend, *gated, matrix.source), 1.0) << n << " x " << k << " gated";
  }
}

TEST(self_check, refuses_one_code_that_is_another) {
  auto const backend = ops::cpu::make_backend(2);
  for (ops::linear_use const use : {ops::linear_use::product, ops::linear_use::gate_up}) {
    for (std::size_t const at : {std::size_t{0}, std::size_t{63 * 64 + 17}}) {
      fp8_matrix matrix(64, 64, 6);
      matrix.source.use = use;
      auto const packed = backend->make_linear(matrix.source);
      std::uint8_t& code = matrix.codes[at];
      code = qpn::encode_e4m3(qpn::decode_e4m3(code) == 1.0F ? 2.0F : 1.0F);
      try {
        check_product(*backend, *packed, matrix.source);
        ADD_FAILURE() << "code " << at << " was changed and nothing was said";
      } catch (error const& refused) {
        EXPECT_EQ(refused.kind(), error_kind::internal);
        EXPECT_NE(std::string(refused.what()).find("self-check of tested: output "),
                  std::string::npos)
            << refused.what();
      }
    }
  }
}

TEST(self_check, refuses_another_scale) {
  auto const backend = ops::cpu::make_backend(2);
  fp8_matrix matrix(64, 64, 7);
  auto const packed = backend->make_linear(matrix.source);
  matrix.part.global_scale *= 1.001F;
  EXPECT_THROW(check_product(*backend, *packed, matrix.source), error);
}

/// Takes another matrix for products of many rows.
class other_for_many_rows final : public ops::profiled_backend {
 public:
  using ops::profiled_backend::profiled_backend;
  void matmul(ops::linear const& w, ops::tensor x, ops::tensor y, bool accumulate) override {
    bool const many = x.rows > qpn::gemm_max_m;
    asked = asked || many;
    ops::profiled_backend::matmul(many && other != nullptr ? *other : w, x, y, accumulate);
  }
  ops::linear const* other = nullptr;
  bool asked = false;
};

TEST(self_check, asks_for_many_rows_where_products_may_have_them) {
  other_for_many_rows backend(ops::cpu::make_backend(2));
  fp8_matrix matrix(64, 64, 8);
  auto const packed = backend.make_linear(matrix.source);
  EXPECT_LE(check_product(backend, *packed, matrix.source), 1.0);
  EXPECT_FALSE(backend.asked);
  matrix.source.most_rows = 129;
  EXPECT_LE(check_product(backend, *packed, matrix.source), 1.0);
  EXPECT_TRUE(backend.asked);

  fp8_matrix other(64, 64, 8);
  other.codes.back() ^= 1U;  // of the last output
  auto const wrong = backend.make_linear(other.source);
  backend.other = wrong.get();
  EXPECT_THROW(check_product(backend, *packed, matrix.source), error);
  matrix.source.most_rows = qpn::gemm_max_m;
  EXPECT_LE(check_product(backend, *packed, matrix.source), 1.0);
}

}  // namespace
}  // namespace qwen38::model

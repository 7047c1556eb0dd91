// SPDX-License-Identifier: Apache-2.0
// Products of the CUDA backend: packing on the device, plans, fusions.

#include <gtest/gtest.h>

#include "support/error.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using ops::row_kind;
using qpn::test::published_weight;
using qpn::test::random_source;
using qpn::test::weight_kind;

ops::linear_source source_of(published_weight const& weight,
                             std::vector<qpn::weight_part> const& parts,
                             ops::linear_use use = ops::linear_use::product) {
  qpn::packed_layout const& layout = weight.layout();
  ops::linear_source source;
  source.name = "the weight";
  source.format = layout.format;
  source.dense_type = layout.code_type;
  source.scales = layout.scale;
  source.k = layout.k;
  source.parts = parts;
  source.use = use;
  return source;
}

std::string refusal(auto&& make) {
  try {
    make();
  } catch (error const& problem) {
    return problem.what();
  }
  return "accepted";
}

class cuda_linear : public ::testing::TestWithParam<weight_kind> {};

/// Appends x W^T and y + x W^T.
void add_products(test_backend& device, ops::linear const& w, std::vector<float> const& x,
                  std::vector<float> const& y, std::vector<std::vector<float>>& results) {
  auto const m = static_cast<std::int64_t>(x.size()) / w.k();
  ops::tensor const in = device.make(row_kind::activation, m, x);
  ops::tensor const fresh = device.make(row_kind::stream, m, w.n());
  ops::tensor const sum = device.make(row_kind::stream, m, y);
  device->matmul(w, in, fresh, false);
  device->matmul(w, in, sum, true);
  results.push_back(device.read(fresh));
  results.push_back(device.read(sum));
}

TEST_P(cuda_linear, products_agree_with_the_cpu_added_or_not) {
  random_source random(11);
  published_weight const weight(GetParam(), {32, 64, 41}, 144, random);
  auto const parts = weight.views();
  for (std::int64_t m : {1, 9, 21}) {
    auto const x = rounded_to_f16(random_floats(static_cast<std::uint64_t>(m), m * 144));
    auto const y = random_floats(12, m * 137);
    std::vector<std::vector<float>> results;
    for (bool on_gpu : {false, true}) {
      auto device = on_gpu ? test_backend::cuda() : test_backend::cpu();
      auto const w = device->make_linear(source_of(weight, parts));
      EXPECT_EQ(w->n(), 137);
      EXPECT_EQ(w->k(), 144);
      add_products(device, *w, x, y, results);
    }
    EXPECT_LT(relative_error(results[2], results[0]), 2e-6) << "m " << m;
    EXPECT_LT(relative_error(results[3], results[1]), 2e-6) << "m " << m;
  }
}

// What writes x for products that read fragment order faster gives it that order; no bit changes.
TEST(cuda_linear_input, in_the_order_of_products_gives_the_bits_of_rows) {
  random_source random(51);
  constexpr std::int64_t k = 256;
  published_weight const weight({qpn::format_id::fp8, qpn::scale_mode::channel, qpn::dtype::f16},
                                {64, 41}, k, random);
  auto const parts = weight.views();
  auto device = test_backend::cuda({}, device_kind::with_tiles);
  auto const w = device->make_linear(source_of(weight, parts));
  auto const norm = device->make_constants(random_floats(52, k));
  ops::tensor const all = device.make(row_kind::activation, 24, k);
  for (std::int64_t m : {1, 8, 9, 16, 17, 24}) {
    ops::tensor const x = device.make(row_kind::stream, m, random_floats(53, m * k));
    std::vector<std::vector<float>> results;
    for (ops::tensor const& input : {all.slice_rows(0, m), device->input_rows(*w, all, m)}) {
      device->rms_norm(x, *norm, 1e-6F, input);
      ops::tensor const y = device.make(row_kind::stream, m, w->n());
      device->matmul(*w, input, y, false);
      results.push_back(device.read(y));
    }
    EXPECT_TRUE(same_bits(results[0], results[1])) << "m " << m;
    bool const is_mma16 = w->layout().id == qpn::layout_id::sm80_mma16;
    EXPECT_EQ(device->input_rows(*w, all, m).fragments, is_mma16 && m <= 16) << "m " << m;
  }
  // Whole tiles of 8 rows find no room in 7.
  EXPECT_FALSE(device->input_rows(*w, device.make(row_kind::activation, 7, k), 3).fragments);
}

// As many rows as a prefill pass has go by the kernels for many rows where the weight has some, and
// more of them in several launches.
TEST_P(cuda_linear, many_rows_agree_with_the_cpu_added_or_not) {
  random_source random(31);
  published_weight const weight(GetParam(), {32, 64, 41}, 144, random);
  auto const parts = weight.views();
  ops::linear_source source = source_of(weight, parts);
  source.most_rows = 120;
  for (std::int64_t m : {97, 120, 131}) {
    auto const x = rounded_to_f16(random_floats(static_cast<std::uint64_t>(m), m * 144));
    auto const y = random_floats(32, m * 137);
    std::vector<std::vector<float>> results;
    for (bool on_gpu : {false, true}) {
      auto device = on_gpu ? test_backend::cuda() : test_backend::cpu();
      auto const w = device->make_linear(source);
      add_products(device, *w, x, y, results);
      if (!on_gpu) continue;
      bool const has_wide = std::ranges::any_of(device->routes(), [](ops::route_count const& one) {
        return one.route.find("/wide") != std::string::npos;
      });
      bool const mma16 = w->layout().id == qpn::layout_id::sm80_mma16;
      EXPECT_EQ(has_wide, w->layout().scale != qpn::scale_mode::block &&
                              !(mma16 && w->layout().format == qpn::format_id::dense16));
    }
    EXPECT_LT(relative_error(results[2], results[0]), 1e-5) << "m " << m;
    EXPECT_LT(relative_error(results[3], results[1]), 1e-5) << "m " << m;
  }
}

TEST_P(cuda_linear, a_row_is_the_same_bits_at_every_m) {
  random_source random(13);
  published_weight const weight(GetParam(), {96}, 80, random);
  auto const parts = weight.views();
  auto device = test_backend::cuda();
  auto const w = device->make_linear(source_of(weight, parts));
  ops::tensor const x =
      device.make(row_kind::activation, 40, rounded_to_f16(random_floats(14, 40 * 80)));
  ops::tensor const all = device.make(row_kind::stream, 40, 96);
  device->matmul(*w, x, all, false);
  auto const wanted = device.read(all);
  for (std::int64_t first : {0, 7, 16, 33}) {
    for (std::int64_t m : {1, 5}) {
      ops::tensor const some = device.make(row_kind::stream, m, 96);
      device->matmul(*w, x.slice_rows(first, m), some, false);
      EXPECT_TRUE(same_bits(device.read(some),
                            std::span(wanted).subspan(static_cast<std::size_t>(first) * 96,
                                                      static_cast<std::size_t>(m) * 96)))
          << "rows " << first << " to " << first + m;
    }
  }
}

// A device may run both at once, and neither with an x that is still being written.
TEST_P(cuda_linear, two_products_of_one_x_are_those_of_two_calls) {
  constexpr std::int64_t k = 256;
  constexpr std::int64_t rounds = 24;
  bool const is_emulated = test_device_is_emulated();
  std::int64_t const n = is_emulated ? 128 : 4096;
  random_source random(17);
  published_weight const large(GetParam(), {n}, k, random);
  published_weight const small(GetParam(), {96}, k, random);
  auto const parts = std::pair(large.views(), small.views());
  auto device = test_backend::cuda();
  auto const w = device->make_linear(source_of(large, parts.first));
  auto const w2 = device->make_linear(source_of(small, parts.second));
  auto const norm = device->make_constants(random_floats(18, k));
  for (std::int64_t const m : {1, 8, 16, 40}) {
    ops::tensor const in = device.make(
        row_kind::stream, m * rounds, random_floats(static_cast<std::uint64_t>(m), m * rounds * k));
    ops::tensor const x = device.make(row_kind::activation, m, k);
    ops::tensor const y = device.make(row_kind::stream, m, n);
    ops::tensor const y2 = device.make(row_kind::stream, m, 96);
    std::vector<std::vector<float>> got[2];
    for (int const at_once : {0, 1}) {
      ops::tensor const kept = device.make(row_kind::stream, m * rounds, n);
      ops::tensor const kept2 = device.make(row_kind::stream, m * rounds, 96);
      for (std::int64_t round = 0; round < rounds; ++round) {
        device->rms_norm(in.slice_rows(round * m, m), *norm, 1e-6F, x);
        if (at_once == 1) {
          device->matmul_two(x, *w, y, *w2, y2);
        } else {
          device->matmul(*w, x, y, false);
          device->matmul(*w2, x, y2, false);
        }
        device->copy(y2, kept2.slice_rows(round * m, m));
        device->copy(y, kept.slice_rows(round * m, m));
      }
      got[at_once] = {device.read(kept), device.read(kept2)};
    }
    EXPECT_TRUE(same_bits(got[1][0], got[0][0])) << "m " << m;
    EXPECT_TRUE(same_bits(got[1][1], got[0][1])) << "m " << m << ", the second";
  }
}

TEST_P(cuda_linear, gates_and_ups_agree_with_the_cpu) {
  random_source random(15);
  published_weight weight(GetParam(), {96, 96}, 64, random);
  for (auto& part : weight.parts()) {  // so that nothing saturates
    part.global_scale *= 1e-3F;
    for (float& scale : part.channel_scales) scale *= 1e-3F;
    for (float& scale : part.scale_blocks) scale *= 1e-3F;
  }
  auto const parts = weight.views();
  auto const x = rounded_to_f16(random_floats(16, 19 * 64));
  std::vector<std::vector<float>> results;
  for (bool on_gpu : {false, true}) {
    auto device = on_gpu ? test_backend::cuda() : test_backend::cpu();
    auto const w = device->make_linear(source_of(weight, parts, ops::linear_use::gate_up));
    ops::tensor const in = device.make(row_kind::activation, 19, x);
    ops::tensor const y = device.make(row_kind::activation, 19, 96);
    device->gate_up(*w, in, y);
    results.push_back(device.read(y));
  }
  EXPECT_LT(relative_error(results[1], results[0]), 5e-4);
}

// The largest logit without the logits: the same id as in the product, the lowest of equals.
TEST_P(cuda_linear, best_tokens_are_those_of_the_product) {
  random_source random(23);
  published_weight const weight(GetParam(), {96, 41}, 80, random);
  auto const parts = weight.views();
  auto device = test_backend::cuda();
  auto const w = device->make_linear(source_of(weight, parts, ops::linear_use::head));
  for (std::int64_t m : {1, 17}) {
    auto values = rounded_to_f16(random_floats(24, m * 80));
    std::fill_n(values.begin(), 80, 0.0F);  // all logits of the first row are equal
    ops::tensor const x = device.make(row_kind::activation, m, values);
    ops::tensor const y = device.make(row_kind::stream, m, 137);
    device->matmul(*w, x, y, false);
    auto const logits = device.read(y);
    ops::token_list best;
    auto const memory = device->make_tokens(m, best);
    for (std::int32_t valid : {137, 130, 1, 0}) {
      device->best_tokens(*w, x, 1000, 1000 + valid, best);
      std::vector<ops::ranked_id> got(best.size());
      device->read(best, got);
      for (std::size_t r = 0; r < got.size(); ++r) {
        auto const row = std::span(logits).subspan(r * 137, static_cast<std::size_t>(valid));
        auto const wanted = std::ranges::max_element(row);
        EXPECT_EQ(got[r].id, valid == 0 ? -1 : 1000 + (wanted - row.begin())) << "row " << r;
        if (valid > 0) {
          EXPECT_EQ(got[r].value, *wanted);
        }
      }
    }
  }
}

std::string name_of(testing::TestParamInfo<weight_kind> const& info) {
  return qpn::test::to_string(info.param);
}
INSTANTIATE_TEST_SUITE_P(kinds, cuda_linear, ::testing::ValuesIn(qpn::test::all_weight_kinds),
                         name_of);

TEST(cuda_linear_packing, a_weight_that_cannot_be_used_is_named_with_its_row) {
  random_source random(17);
  for (ops::linear_use use : {ops::linear_use::product, ops::linear_use::gate_up}) {
    published_weight weight({qpn::format_id::fp8, qpn::scale_mode::tensor, qpn::dtype::f16},
                            {64, 64}, 48, random);
    weight.parts()[1].codes[40 * 48 + 5] = 0x7f;
    auto const parts = weight.views();
    auto device = test_backend::cuda();
    std::string const sentence =
        refusal([&] { device->make_linear(source_of(weight, parts, use)); });
    EXPECT_EQ(sentence.find("the weight: "), 0U) << sentence;
    EXPECT_NE(sentence.find("(row 104, column 5)"), std::string::npos) << sentence;
  }
}

TEST(cuda_linear_packing, what_the_layout_cannot_hold_is_refused) {
  random_source random(18);
  auto device = test_backend::cuda();
  published_weight const gates({qpn::format_id::dense16, qpn::scale_mode::none, qpn::dtype::f16},
                               {48, 48}, 16, random);
  auto const gate_parts = gates.views();
  EXPECT_EQ(
      refusal([&] { device->make_linear(source_of(gates, gate_parts, ops::linear_use::gate_up)); }),
      "the weight: 48 gates, but a GPU takes a multiple of 32");
}

// Larger than a piece of the upload, so that pieces meet.
TEST(cuda_linear_packing, a_weight_of_many_pieces_is_whole) {
  random_source random(19);
  std::int64_t const k = 4096;
  std::int64_t const n = 4096 + 64;  // 17 MiB of fp8
  published_weight const weight({qpn::format_id::fp8, qpn::scale_mode::tensor, qpn::dtype::f16},
                                {4096, 64}, test_device_is_emulated() ? 16 : k, random);
  auto const parts = weight.views();
  auto const x = rounded_to_f16(random_floats(20, weight.layout().k));
  std::vector<std::vector<float>> results;
  for (bool on_gpu : {false, true}) {
    auto device = on_gpu ? test_backend::cuda() : test_backend::cpu();
    auto const w = device->make_linear(source_of(weight, parts));
    ops::tensor const in = device.make(row_kind::activation, 1, x);
    ops::tensor const y = device.make(row_kind::stream, 1, n);
    device->matmul(*w, in, y, false);
    results.push_back(device.read(y));
  }
  EXPECT_LT(relative_error(results[1], results[0]), 2e-6);
}

TEST(cuda_linear_routes, launches_are_counted_by_route) {
  random_source random(21);
  published_weight const weight({qpn::format_id::nvfp4, qpn::scale_mode::tensor, qpn::dtype::f16},
                                {64}, 64, random);
  auto const parts = weight.views();
  auto device = test_backend::cuda();
  EXPECT_TRUE(device->routes().empty());
  auto const w = device->make_linear(source_of(weight, parts));
  ops::tensor const x = device.make(row_kind::activation, 3, 64);
  ops::tensor const y = device.make(row_kind::stream, 3, 64);
  device->matmul(*w, x, y, false);
  device->matmul(*w, x, y, true);
  auto const routes = device->routes();
  ASSERT_EQ(routes.size(), 1U);
  EXPECT_EQ(routes[0].launches, 2U);
  EXPECT_NE(routes[0].route.find("/nvfp4/"), std::string::npos) << routes[0].route;
}

}  // namespace
}  // namespace qwen38::test

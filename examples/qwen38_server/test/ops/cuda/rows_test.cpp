// SPDX-License-Identifier: Apache-2.0
// Embedding, copies, RMSNorm and argmax of the CUDA backend.

#include <gtest/gtest.h>

#include <limits>

#include "support/error.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using ops::row_kind;

TEST(cuda_rows, embed_reads_bf16_and_f16_rows_exactly) {
  std::vector<std::uint16_t> table;
  for (std::uint32_t i = 0; i < 7 * 33; ++i)
    table.push_back(static_cast<std::uint16_t>(0x3001 + i * 0x25));
  std::vector<std::int32_t> const ids = {6, 0, 3, 3};
  for (qpn::dtype type : {qpn::dtype::bf16, qpn::dtype::f16}) {
    auto device = test_backend::cuda();
    auto const embedding = device->make_embedding(std::as_bytes(std::span(table)), type, 33);
    ops::tensor const y = device.make(row_kind::stream, 4, 33);
    device->embed(*embedding, device.set({.ids = ids}), y);
    std::vector<float> wanted;
    for (std::int32_t id : ids) {
      for (int i = 0; i < 33; ++i) {
        std::uint16_t const bits = table[static_cast<std::size_t>(id * 33 + i)];
        wanted.push_back(type == qpn::dtype::bf16 ? qpn::decode_bf16(bits) : qpn::decode_f16(bits));
      }
    }
    EXPECT_TRUE(same_bits(device.read(y), wanted)) << to_string(type);
    EXPECT_EQ(embedding->resident_bytes(), table.size() * 2);
  }
}

TEST(cuda_rows, moves_take_the_rows_named_and_touch_no_other) {
  auto device = test_backend::cuda();
  auto const values = random_floats(1, 5 * 70);
  ops::tensor const x = device.make(row_kind::stream, 5, values);
  for (row_kind kind : {row_kind::stream, row_kind::activation}) {
    ops::tensor const y = device.make(kind, 4, std::vector<float>(4 * 70, 8.0F));
    std::vector<ops::row_move> const first = {{4, 0}, {1, 3}};
    std::vector<ops::row_move> const second = {{0, 1}};
    device->move_rows(device.set({.moves = {first, second}}), 0, x, y);
    std::vector<float> wanted(4 * 70, 8.0F);
    std::copy_n(values.begin() + 4 * 70, 70, wanted.begin());
    std::copy_n(values.begin() + 1 * 70, 70, wanted.begin() + 3 * 70);
    if (kind == row_kind::activation) wanted = rounded_to_f16(wanted);
    EXPECT_TRUE(same_bits(device.read(y), wanted));
  }
}

TEST(cuda_rows, an_activation_is_saturated_and_keeps_what_is_no_number) {
  auto device = test_backend::cuda();
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> const values = {1e6F, -1e6F, infinity, 65519.0F, 1e-9F, std::nanf("")};
  ops::tensor const x = device.make(row_kind::stream, 1, values);
  ops::tensor const y = device.make(row_kind::activation, 1, 6);
  device->copy(x, y);
  auto const got = device.read(y);
  EXPECT_EQ(std::vector<float>(got.begin(), got.end() - 1),
            (std::vector<float>{65504.0F, -65504.0F, infinity, 65504.0F, 0.0F}));
  EXPECT_TRUE(std::isnan(got.back()));
}

TEST(cuda_rms_norm, agrees_with_the_cpu_at_any_size) {
  for (std::int64_t cols : {1, 31, 64, 192, 257, 5120}) {
    auto reference = test_backend::cpu();
    auto device = test_backend::cuda();
    auto const values = random_floats(static_cast<std::uint64_t>(cols), 3 * cols, 30.0F);
    auto const weights = random_floats(static_cast<std::uint64_t>(cols) + 1, cols);
    std::vector<std::vector<float>> results;
    for (test_backend* on : {&reference, &device}) {
      auto const w = (*on)->make_constants(weights);
      ops::tensor const x = on->make(row_kind::stream, 3, values);
      ops::tensor const stream = on->make(row_kind::stream, 3, 2 * cols);
      ops::tensor const activation = on->make(row_kind::activation, 3, cols);
      (*on)->rms_norm(x, *w, 1e-6F, stream.slice_cols(cols, cols));
      (*on)->rms_norm(x, *w, 1e-6F, activation);
      results.push_back(on->read(stream));
      results.push_back(on->read(activation));
    }
    EXPECT_LT(relative_error(results[2], results[0]), 1e-6) << "cols " << cols;
    EXPECT_LT(relative_error(results[3], results[1]), 5e-4) << "cols " << cols;
  }
}

TEST(cuda_rms_norm, a_row_is_the_same_bits_alone_and_among_others) {
  auto device = test_backend::cuda();
  auto const values = random_floats(5, 9 * 192);
  auto const w = device->make_constants(random_floats(6, 192));
  ops::tensor const x = device.make(row_kind::stream, 9, values);
  ops::tensor const together = device.make(row_kind::stream, 9, 192);
  device->rms_norm(x, *w, 1e-6F, together);
  auto const wanted = device.read(together);
  for (std::int64_t r = 0; r < 9; ++r) {
    ops::tensor const alone = device.make(row_kind::stream, 1, 192);
    device->rms_norm(x.slice_rows(r, 1), *w, 1e-6F, alone);
    EXPECT_TRUE(same_bits(device.read(alone),
                          std::span(wanted).subspan(static_cast<std::size_t>(r) * 192, 192)))
        << "row " << r;
  }
}

TEST(cuda_argmax, the_lowest_index_wins_a_tie_and_padding_is_never_chosen) {
  auto device = test_backend::cuda();
  std::vector<float> logits = {1, 3, 3, 2, 9, /* second row */ -5, -7, -5, -5, 0};
  ops::tensor const x = device.make(row_kind::stream, 2, logits);
  std::vector<ops::ranked_id> best(2);
  device->argmax(x, 4, best);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[0].value, 3.0F);
  EXPECT_EQ(best[1].id, 0);
  EXPECT_EQ(best[1].value, -5.0F);
}

TEST(cuda_argmax, finds_the_largest_of_many_columns_wherever_it_is) {
  auto device = test_backend::cuda();
  std::int64_t const cols = 20000;
  auto values = random_floats(7, 6 * cols);
  std::vector<std::int32_t> const places = {0, 8191, 8192, 16383, 16384, 19999};
  for (std::size_t r = 0; r < places.size(); ++r) {
    float* const row = values.data() + static_cast<std::ptrdiff_t>(r) * cols;
    row[places[r]] = 9.0F;
    row[cols - 1] = 9.0F;  // a later equal
  }
  ops::tensor const x = device.make(row_kind::stream, 6, values);
  std::vector<ops::ranked_id> best(6);
  device->argmax(x, cols, best);
  for (std::size_t r = 0; r < places.size(); ++r) EXPECT_EQ(best[r].id, places[r]) << "row " << r;
  device->argmax(x, 8191, best);  // and not what is beyond
  EXPECT_EQ(best[0].id, 0);
  EXPECT_LT(best[1].id, 8191);
}

TEST(cuda_memory, what_does_not_fit_is_refused_in_one_sentence) {
  auto device = test_backend::cuda();
  ops::attention_shape const shape{8, 4, 256, 64, 1e7, 1e-6F};
  try {
    auto const cache = device->make_kv_cache(shape, 16, std::int64_t{1} << 24);
    FAIL() << "accepted";
  } catch (error const& problem) {
    EXPECT_EQ(problem.kind(), error_kind::unavailable);
    EXPECT_EQ(
        std::string(problem.what()).find("the KV cache needs 33554432 MiB of GPU memory, but "), 0U)
        << problem.what();
  }
  ops::tensor const y = device.make(row_kind::stream, 1, 5);  // and all else goes on
  EXPECT_EQ(device.read(y), std::vector<float>(5));
}

TEST(cuda_memory, is_zero_when_it_is_handed_out) {
  for (int round = 0; round < 3; ++round) {
    auto device = test_backend::cuda();
    ops::tensor const dirty = device.make(row_kind::stream, 7, std::vector<float>(7 * 1000, 1.0F));
    EXPECT_EQ(device.read(dirty), std::vector<float>(7 * 1000, 1.0F));
    ops::tensor const fresh = device.make(row_kind::activation, 7, 1001);
    EXPECT_EQ(device.read(fresh), std::vector<float>(7 * 1001));
  }
}

TEST(cuda_pass, refuses_more_than_its_limits_and_rows_out_of_order) {
  auto device = test_backend::cuda();
  auto const p = device->make_pass({4, 2, 1, 3});
  std::vector<std::int32_t> const pages = {0, 1};
  auto const set = [&](std::vector<ops::row_span> const& spans, std::size_t moves = 0) {
    std::vector<ops::row_move> const list(moves);
    device->set_pass(*p, {.spans = spans, .moves = {list, {}}});
  };
  EXPECT_NO_THROW(set({{0, 0, 0, 3}, {1, 0, 3, 1}}, 3));
  EXPECT_THROW(set({{0, 0, 0, 3}, {1, 0, 3, 2}}), error);
  EXPECT_THROW(set({{0, 0, 0, 3}, {1, 0, 2, 1}}), error);
  EXPECT_THROW(set({{0, 0, 0, 1}, {1, 0, 1, 1}, {2, 0, 2, 1}}), error);
  EXPECT_THROW(set({{0, 63, 0, 2, false, pages}}), error);
  EXPECT_THROW(set({{0, 0, 0, 1}}, 4), error);
}

}  // namespace
}  // namespace qwen38::test

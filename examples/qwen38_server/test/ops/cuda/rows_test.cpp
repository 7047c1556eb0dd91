// SPDX-License-Identifier: Apache-2.0
// Embedding, copies, RMSNorm and passes of the CUDA backend.

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
    device->embed(*embedding, device.set({.ids = ids}), {}, y);
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
  for (std::int64_t cols : {1, 31, 64, 192, 257, 5120, 9001}) {
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

TEST(cuda_memory, what_does_not_fit_is_refused_in_one_sentence) {
  auto device = test_backend::cuda();
  ops::attention_shape const shape{8, 4, 256, 64, 1e7, 1e-6F};
  try {
    auto const cache = device->make_kv_cache(shape, 16, std::int64_t{1} << 24);
    FAIL() << "accepted";
  } catch (error const& problem) {
    EXPECT_EQ(problem.kind(), error_kind::unavailable);
    EXPECT_EQ(
        std::string(problem.what()).find("the KV cache needs 33554434 MiB of GPU memory, but "), 0U)
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

// A recorded operation sees the rows of the pass that is set when it is done again.
TEST(cuda_recording, does_its_operations_again_with_the_rows_set_since) {
  auto device = test_backend::cuda();
  ASSERT_TRUE(device->records());
  std::vector<std::uint16_t> table;
  for (std::uint32_t i = 0; i < 9; ++i) table.push_back(qpn::encode_f16(static_cast<float>(i)));
  auto const embedding =
      device->make_embedding(std::as_bytes(std::span(table)), qpn::dtype::f16, 1);
  ops::tensor const y = device.make(row_kind::stream, 3, 1);
  std::vector<std::int32_t> ids = {1, 2, 3};
  ops::pass const& p = device.set({.ids = ids});
  auto const recorded = device->record([&] { device->embed(*embedding, p, {}, y); });
  EXPECT_EQ(device.read(y), std::vector<float>(3));  // nothing was done
  std::uint64_t const waits = device->counts().waits;
  for (std::int32_t first : {4, 6}) {
    ids = {first, 0, first + 2};
    device.set({.ids = ids});
    device->replay(*recorded);
    EXPECT_EQ(device.read(y),
              (std::vector<float>{static_cast<float>(first), 0.0F, static_cast<float>(first + 2)}));
  }
  EXPECT_EQ(device->counts().recordings, 1U);
  EXPECT_EQ(device->counts().replays, 2U);
  EXPECT_EQ(device->counts().waits, waits + 2);  // the reads
}

TEST(cuda_recording, refuses_what_cannot_be_done_again) {
  auto device = test_backend::cuda();
  ops::tensor const x = device.make(row_kind::stream, 2, 3);
  std::vector<float> values(6);
  EXPECT_THROW(device->record([&] { device->read(x, values); }), error);
  EXPECT_THROW(device->record([&] { device.set({}); }), error);
  EXPECT_THROW(device->record([&] { device.make(row_kind::stream, 1, 1); }), error);
  EXPECT_EQ(device->counts().recordings, 0U);
  device->copy(x, x);  // and all else goes on
  EXPECT_EQ(device.read(x), values);
}

TEST(cuda_pass, fills_up_with_rows_that_write_to_their_own_page_alone) {
  ops::attention_shape const shape{2, 1, 256, 64, 1e7, 1e-6F};
  auto const norm = random_floats(1, 256, 0.1F);
  auto const values = random_floats(2, 8 * 512);
  std::vector<std::int32_t> const first = {2, 0};
  std::vector<std::int32_t> const second = {1, 3};
  std::vector<ops::row_span> const spans = {{0, 62, 0, 3, false, first},
                                            {1, 5, 3, 1, false, second}};
  std::vector<std::vector<float>> attended;
  for (bool fill : {false, true}) {
    auto device = test_backend::cuda();
    auto const cache = device->make_kv_cache(shape, 1, 4);
    auto const k_norm = device->make_constants(norm);
    auto const store = [&](ops::pass_rows rows, std::int64_t count, std::span<float const> from) {
      ops::pass const& p = device.set(rows);
      ops::tensor const kv =
          device.make(row_kind::stream, count, std::vector<float>(from.begin(), from.end()));
      device->store_kv(*cache, 0, p, kv, *k_norm);
    };
    // What the lanes' earlier slots hold; then rows that must not touch any of it.
    std::vector<std::vector<float>> before = {random_floats(3, 62 * 512),
                                              random_floats(4, 5 * 512)};
    std::vector<ops::row_span> earlier = {{0, 0, 0, 62, false, first}};
    store({.spans = earlier}, 62, before[0]);
    earlier = {{1, 0, 0, 5, false, second}};
    store({.spans = earlier}, 5, before[1]);
    ops::pass_rows rows{.spans = spans};
    if (fill) rows.size = ops::pass_size{8, 4, 4, 256, 4};
    std::int64_t const count = fill ? 8 : 4;
    store(rows, count, std::span(values).first(static_cast<std::size_t>(count * 512)));
    ops::tensor const q_gate =
        device.make(row_kind::stream, count, random_floats(5, count * 2 * 512));
    ops::tensor const out = device.make(row_kind::activation, count, 512);
    device->attention(*cache, 0, device.set(rows), q_gate, *k_norm, out);
    attended.push_back(device.read(out.slice_rows(0, 4)));
  }
  EXPECT_TRUE(same_bits(attended[0], attended[1]));
}

TEST(cuda_pass, refuses_rows_that_exceed_the_sizes_it_is_filled_up_to) {
  auto device = test_backend::cuda();
  std::vector<std::int32_t> const pages = {0};
  std::vector<ops::row_span> const spans = {{0, 0, 0, 3, false, pages}, {1, 9, 3, 1, false, pages}};
  auto const set = [&](ops::pass_size const& size) { device.set({.spans = spans, .size = size}); };
  EXPECT_NO_THROW(set({4, 2, 3, 10, 7}));
  EXPECT_THROW(set({3, 2, 3, 10, 7}), error);
  EXPECT_THROW(set({4, 1, 3, 10, 7}), error);
  EXPECT_THROW(set({4, 2, 2, 10, 7}), error);
  EXPECT_THROW(set({4, 2, 3, 9, 7}), error);
  EXPECT_THROW(set({201, 2, 3, 10, 7}), error);  // than the pass's own limit
}

}  // namespace
}  // namespace qwen38::test

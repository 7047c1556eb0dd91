// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "ops/cuda/attention_partitions.hpp"
#include "ops/cuda/cuda_backend.hpp"
#include "support/error.hpp"
#include "test/ops/cuda/naming_device.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using ops::row_kind;

TEST(cuda_attention_partitions, cover_every_slot_once) {
  using namespace ops::cuda;
  EXPECT_EQ(partition_of(0), 0);
  std::int64_t slot = 0;
  for (std::int64_t p = 0; p < 300; ++p) {
    EXPECT_EQ(first_slot_of(p), slot) << "partition " << p;
    EXPECT_EQ(slot % ops::kv_page_tokens, 0);
    std::int64_t const next = first_slot_of(p + 1);
    EXPECT_EQ(partition_of(slot), p);
    EXPECT_EQ(partition_of(next - 1), p);
    slot = next;
  }
  EXPECT_LE(partition_of(262144), 200);
}

/// One sequence's projections, in some lane, on pages of its own.
struct sequence {
  ops::attention_shape shape;
  std::int64_t rows;
  std::vector<float> q_gate;
  std::vector<float> kv;
  std::vector<std::int32_t> pages;

  sequence(ops::attention_shape const& of, std::int64_t count, std::uint64_t seed,
           std::vector<std::int32_t> own_pages)
      : shape(of),
        rows(count),
        q_gate(random_floats(seed, count * of.num_heads * 512)),
        kv(random_floats(seed + 1, count * 2 * of.num_kv_heads * 256)),
        pages(std::move(own_pages)) {}
};

/// `count` pages that lie in no order, from `first` on.
std::vector<std::int32_t> scattered_pages(std::int32_t first, std::int32_t count) {
  std::vector<std::int32_t> pages;
  for (std::int32_t i = 0; i < count; ++i) pages.push_back(first + (i ^ 1));
  return pages;
}

/// Rows [first, end) of a sequence in one pass.
struct chunk {
  sequence const* of;
  std::int64_t first;
  std::int64_t end;
};

/// A cache of two layers, the second of which is used.
class attention_run {
 public:
  attention_run(test_backend& device, ops::attention_shape const& shape, std::int64_t slot_offset,
                std::int64_t pages = 64)
      : device_(device),
        shape_(shape),
        slot_offset_(slot_offset),
        cache_(device->make_kv_cache(shape, 2, pages)),
        q_norm_(device->make_constants(random_floats(3, 256, 0.3F))),
        k_norm_(device->make_constants(random_floats(4, 256, 0.3F))) {}

  /// Chunks side by side, in one pass; their outputs one after another.
  std::vector<float> pass(std::vector<chunk> const& chunks, bool attend = true) {
    std::vector<ops::row_span> spans;
    std::vector<float> q_gate;
    std::vector<float> kv;
    std::int64_t rows = 0;
    int lane = 0;
    auto const append = [](std::vector<float>& to, std::vector<float> const& from, chunk const& c) {
      auto const width = std::ssize(from) / c.of->rows;
      to.insert(to.end(), from.begin() + c.first * width, from.begin() + c.end * width);
    };
    for (chunk const& c : chunks) {
      spans.push_back({lane++, c.first, rows, c.end - c.first, false, c.of->pages});
      append(q_gate, c.of->q_gate, c);
      append(kv, c.of->kv, c);
      rows += c.end - c.first;
    }
    ops::pass& p = device_.set({.spans = spans, .slot_offset = slot_offset_});
    ops::tensor const kv_rows = device_.make(row_kind::stream, rows, kv);
    ops::tensor const q_rows = device_.make(row_kind::stream, rows, q_gate);
    ops::tensor const out = device_.make(row_kind::activation, rows, shape_.num_heads * 256);
    if (at_once) {
      device_->store_and_attend(*cache_, 1, p, kv_rows, *k_norm_, q_rows, *q_norm_, out);
      return device_.read(out);
    }
    device_->store_kv(*cache_, 1, p, kv_rows, *k_norm_);
    if (!attend) return {};
    device_->attention(*cache_, 1, p, q_rows, *q_norm_, out);
    return device_.read(out);
  }
  bool at_once = false;  ///< one call stores and attends

  /// A whole sequence in passes that end at `cuts`.
  std::vector<float> all(sequence const& of, std::vector<std::int64_t> cuts = {}) {
    cuts.push_back(of.rows);
    std::vector<float> out;
    std::int64_t first = 0;
    for (std::int64_t cut : cuts) {
      for (; first < cut; first = std::min(cut, first + 96)) {
        auto const part = pass({{&of, first, std::min(cut, first + 96)}});
        out.insert(out.end(), part.begin(), part.end());
      }
    }
    return out;
  }

 private:
  test_backend& device_;
  ops::attention_shape shape_;
  std::int64_t slot_offset_;
  std::unique_ptr<ops::kv_cache> cache_;
  std::unique_ptr<ops::constants> q_norm_;
  std::unique_ptr<ops::constants> k_norm_;
};

std::vector<float> run(test_backend device, sequence const& of, std::int64_t slot_offset,
                       std::vector<std::int64_t> const& cuts = {}) {
  return attention_run(device, of.shape, slot_offset).all(of, cuts);
}

constexpr ops::attention_shape demo_shape{8, 4, 256, 64, 1e7, 1e-6F};
constexpr ops::attention_shape wide_shape{6, 1, 256, 64, 1e7, 1e-6F};  // a rank of the 27B model

/// Runs with tensor cores or without.
class cuda_attention : public testing::TestWithParam<bool> {
 protected:
  static test_backend cuda(std::int64_t sums = ops::cuda::cuda_options().attention_sums) {
    return test_backend::cuda({.attention_sums = sums, .attention_tiles = GetParam()},
                              GetParam() ? device_kind::with_tiles : device_kind::plain);
  }
};

TEST_P(cuda_attention, agrees_with_the_cpu_at_page_and_tile_borders) {
  for (auto const& shape : {demo_shape, wide_shape}) {
    for (std::int64_t rows : {1, 2, 31, 33, 64, 70}) {
      for (std::int64_t slot_offset : {0, 1}) {
        sequence const s(shape, rows, static_cast<std::uint64_t>(rows), scattered_pages(5, 6));
        auto const wanted = run(test_backend::cpu(), s, slot_offset);
        auto const got = run(cuda(), s, slot_offset);
        EXPECT_LT(relative_error(got, wanted), 1e-3)
            << "heads " << shape.num_heads << ", rows " << rows << ", offset " << slot_offset;
      }
    }
  }
}

TEST_P(cuda_attention, any_chunking_gives_the_same_bits) {
  for (std::int64_t slot_offset : {0, 1}) {
    sequence const s(demo_shape, 75, 21, scattered_pages(0, 2));
    auto const whole = run(cuda(), s, slot_offset);
    EXPECT_TRUE(same_bits(whole, run(cuda(), s, slot_offset, {64})));
    EXPECT_TRUE(same_bits(whole, run(cuda(), s, slot_offset, {1, 2, 7, 40, 63, 74})));
  }
}

TEST_P(cuda_attention, storing_and_attending_at_once_gives_the_same_bits) {
  for (auto const& shape : {demo_shape, wide_shape}) {
    sequence const s(shape, 40, 25, scattered_pages(0, 2));
    // Passes of so few queries that each CTA prepares its own, and of more.
    std::vector<std::int64_t> const cuts = {1, 2, 4, 21, 22};
    auto device = cuda();
    attention_run joined(device, shape, 0);
    joined.at_once = true;
    EXPECT_TRUE(same_bits(joined.all(s, cuts), run(cuda(), s, 0, cuts)))
        << "heads " << shape.num_heads;
  }
}

// CTAs of few queries make the keys and values of up to 8 rows a sequence themselves: across
// borders of pages and partitions, beside other sequences, and for later passes to read.
TEST_P(cuda_attention, rows_that_it_stores_itself_are_the_same_bits) {
  sequence const a(demo_shape, 75, 41, scattered_pages(0, 2));
  sequence b(demo_shape, 10, 42, scattered_pages(2, 2));
  b.kv[8 * 2048 + 1024 + 3] = std::nanf("");
  std::vector<std::vector<float>> results;
  for (bool const at_once : {false, true}) {
    auto device = cuda();
    attention_run run(device, demo_shape, 1);
    run.at_once = at_once;
    results.emplace_back();
    auto const add = [&](std::vector<chunk> const& chunks) {
      auto const out = run.pass(chunks);
      results.back().insert(results.back().end(), out.begin(), out.end());
    };
    add({{&a, 0, 57}});
    add({{&a, 57, 65}});
    add({{&b, 0, 8}, {&a, 65, 66}});
    add({{&a, 66, 74}, {&b, 8, 9}});
    add({{&b, 9, 10}, {&a, 74, 75}});
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

// Beyond 1024 slots a partition has several tiles, and a row may be in the last of them.
TEST_P(cuda_attention, rows_that_it_stores_itself_may_be_in_any_tile) {
  ops::attention_shape const shape{1, 1, 256, 64, 1e7, 1e-6F};
  sequence const s(shape, 1160, 43, scattered_pages(0, 20));
  std::vector<std::vector<float>> results;
  for (bool const at_once : {false, true}) {
    auto device = cuda();
    attention_run run(device, shape, 0);
    for (std::int64_t first = 0; first < 1084; first += 96) {
      run.pass({{&s, first, std::min<std::int64_t>(first + 96, 1084)}}, false);
    }
    run.at_once = at_once;
    results.push_back(run.pass({{&s, 1084, 1092}}));  // 1088: the second tile of a partition
    for (std::int64_t first = 1092; first < 1148; first += 8) run.pass({{&s, first, first + 8}});
    results.push_back(run.pass({{&s, 1148, 1156}}));  // 1152: the next partition
    results.push_back(run.pass({{&s, 1156, 1157}}));
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(results[i], results[i + 3])) << i;
}

// Partitions of several tiles by CTAs of 16, of 32 and of 48 queries: kernels that hold K and V of
// their tiles in rings of three and of two places.
TEST_P(cuda_attention, queries_of_a_cta_change_no_bit_of_partitions_with_several_tiles) {
  std::int64_t const first = 1084;  // up to 1093, across a border of tiles, and up to 1101
  sequence const s(wide_shape, first + 17, 44, scattered_pages(0, 18));
  std::vector<std::vector<float>> results;
  for (std::vector<std::int64_t> const& rows : {std::vector<std::int64_t>(17, 1), {4, 5, 8}}) {
    auto device = cuda();
    attention_run run(device, wide_shape, 0);
    for (std::int64_t row = 0; row < first; row += 96) {
      run.pass({{&s, row, std::min(row + 96, first)}}, false);
    }
    results.emplace_back();
    std::int64_t at = first;
    for (std::int64_t const count : rows) {
      auto const out = run.pass({{&s, at, at + count}});
      results.back().insert(results.back().end(), out.begin(), out.end());
      at += count;
    }
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

// The pass of a long prompt, and one that goes on from there.
TEST_P(cuda_attention, wide_passes_give_the_bits_of_narrow_ones) {
  bool const is_slow = test_device_is_emulated();
  ops::attention_shape const shape = is_slow ? ops::attention_shape{2, 1, 256, 64, 1e7, 1e-6F}
                                             : ops::attention_shape{24, 4, 256, 64, 1e7, 1e-6F};
  std::int64_t const first = is_slow ? 110 : 512;
  std::int64_t const rows = is_slow ? 215 : 1000;
  sequence const s(shape, rows, 33, scattered_pages(0, 16));
  auto const narrow = run(cuda(), s, 1);
  auto device = cuda();
  attention_run wide(device, shape, 1);
  auto got = wide.pass({{&s, 0, first}});
  auto const rest = wide.pass({{&s, first, rows}});
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_TRUE(same_bits(got, narrow));
  EXPECT_LT(relative_error(got, run(test_backend::cpu(), s, 1)), 1e-3);
}

TEST_P(cuda_attention, sequences_side_by_side_and_other_pages_change_no_bit) {
  sequence const a(wide_shape, 70, 22, scattered_pages(0, 2));
  sequence const b(wide_shape, 9, 23, scattered_pages(2, 2));
  sequence const c(wide_shape, 41, 24, scattered_pages(4, 2));
  sequence moved = a;
  moved.pages = {40, 11};
  auto const wanted = run(cuda(), a, 0);
  EXPECT_TRUE(same_bits(wanted, run(cuda(), moved, 0)));

  auto device = cuda();
  attention_run together(device, wide_shape, 0);
  together.pass({{&b, 0, 3}, {&a, 0, 60}, {&c, 0, 17}});
  auto const out = together.pass({{&c, 17, 41}, {&a, 60, 70}, {&b, 3, 9}});
  std::size_t const width = 6 * 256;
  EXPECT_TRUE(same_bits(std::span(out).subspan(24 * width, 10 * width),
                        std::span(wanted).subspan(60 * width, 10 * width)));
  auto const alone = run(cuda(), b, 0);
  EXPECT_TRUE(same_bits(std::span(out).subspan(34 * width), std::span(alone).subspan(3 * width)));
}

// Where a pass has more partial sums than are kept, its rows are served a few at a time, or one CTA
// folds all partitions of its queries.
TEST_P(cuda_attention, sums_that_have_no_room_at_once_are_the_same_bits) {
  sequence const s(wide_shape, 640, 25, scattered_pages(0, 12));
  std::vector<std::vector<float>> results;
  for (std::int64_t sums : {65536, 1}) {
    auto device = cuda(sums);
    attention_run run(device, wide_shape, 1);
    for (std::int64_t first = 0; first < 576; first += 96)
      run.pass({{&s, first, first + 96}}, false);
    results.push_back(run.pass({{&s, 576, 640}}));
    results.push_back(run.pass({{&s, 510, 513}}));
  }
  EXPECT_TRUE(same_bits(results[0], results[2]));
  EXPECT_TRUE(same_bits(results[1], results[3]));
}

// Where the queries alone occupy the GPU, each CTA folds all partitions of its queries.
TEST_P(cuda_attention, sums_that_are_folded_at_once_are_the_same_bits) {
  std::int64_t const heads = test_device_is_emulated() ? 2 : 48;
  ops::attention_shape const shape{heads, heads, 256, 64, 1e7, 1e-6F};
  std::vector<sequence> sequences;
  for (std::int32_t i = 0; i < 3; ++i) {
    sequences.emplace_back(shape, 66, static_cast<std::uint64_t>(30 + i),
                           scattered_pages(2 * i, 2));
  }
  auto device = cuda();
  attention_run run(device, shape, 0);
  auto const out =
      run.pass({{&sequences[0], 0, 66}, {&sequences[1], 0, 66}, {&sequences[2], 0, 66}});
  auto const width = static_cast<std::size_t>(heads * 256);
  for (std::size_t i = 0; i < 3; ++i) {
    auto const last = run.pass({{&sequences[i], 65, 66}});
    EXPECT_TRUE(same_bits(last, std::span(out).subspan((66 * i + 65) * width, width)))
        << "sequence " << i;
  }
}

// Beyond 8192 slots partitions are longer; on a GPU the pass of 90 rows is folded, the one of a
// single row is not.
TEST_P(cuda_attention, long_contexts_agree_whatever_the_pass_holds) {
  ops::attention_shape const shape = test_device_is_emulated()
                                         ? ops::attention_shape{1, 1, 256, 64, 1e7, 1e-6F}
                                         : ops::attention_shape{24, 4, 256, 64, 1e7, 1e-6F};
  std::int64_t const rows = 9700;
  std::int64_t const last_rows = test_device_is_emulated() ? 3 : 90;
  sequence const s(shape, rows, 26, scattered_pages(0, 154));
  std::vector<std::vector<float>> results;
  for (bool on_gpu : {false, true}) {
    auto device = on_gpu ? cuda() : test_backend::cpu();
    attention_run run(device, shape, 0, 154);
    std::int64_t const tail = rows - last_rows;
    for (std::int64_t first = 0; first < tail; first += 96)
      run.pass({{&s, first, std::min(first + 96, tail)}}, false);
    results.push_back(run.pass({{&s, tail, rows}}));
    results.push_back(run.pass({{&s, rows - 1, rows}}));
  }
  EXPECT_LT(relative_error(results[2], results[0]), 1e-3);
  std::size_t const width = static_cast<std::size_t>(shape.num_heads) * 256;
  EXPECT_TRUE(same_bits(std::span(results[2]).last(width), results[3]));
}

// What lies in slots that a row does not see is none of its business, even if it is no number.
TEST_P(cuda_attention, later_rows_that_are_no_numbers_stay_unseen) {
  sequence s(wide_shape, 12, 26, scattered_pages(0, 1));
  auto const wanted = run(cuda(), s, 0);
  std::size_t const kv_width = 2 * 256;
  for (std::size_t i = 7 * kv_width; i < s.kv.size(); ++i) s.kv[i] = std::nanf("");
  auto const got = run(cuda(), s, 0);
  std::size_t const width = 6 * 256;
  EXPECT_TRUE(same_bits(std::span(got).first(7 * width), std::span(wanted).first(7 * width)));
  EXPECT_TRUE(std::isnan(got[7 * width]));

  // A later sequence in the same page.
  auto device = cuda();
  attention_run both(device, wide_shape, 0);
  both.pass({{&s, 0, 12}});
  sequence next(wide_shape, 5, 27, scattered_pages(0, 1));
  EXPECT_TRUE(same_bits(both.pass({{&next, 0, 5}}), run(cuda(), next, 0)));
}

// Its own row gets no number, and rows that do not see it are not touched.
TEST_P(cuda_attention, a_value_that_is_no_number_reaches_who_sees_it) {
  sequence s(wide_shape, 12, 29, scattered_pages(0, 1));
  auto const wanted = run(cuda(), s, 0);
  s.kv[7 * 2 * 256 + 256 + 5] = std::nanf("");
  auto const got = run(cuda(), s, 0);
  std::size_t const width = 6 * 256;
  EXPECT_TRUE(same_bits(std::span(got).first(7 * width), std::span(wanted).first(7 * width)));
  for (std::size_t row = 7; row < 12; ++row) {
    for (std::size_t head = 0; head < 6; ++head) {
      EXPECT_TRUE(std::isnan(got[row * width + head * 256 + 5])) << "row " << row;
    }
  }
}

TEST_P(cuda_attention, values_beyond_fp16_are_stored_saturated) {
  sequence s(wide_shape, 1, 28, scattered_pages(0, 1));
  std::fill(s.kv.begin() + 256, s.kv.end(), 1e6F);
  auto const out = run(cuda(), s, 0);
  for (std::size_t i = 0; i < 256; ++i) {
    float const gate = s.q_gate[256 + i];
    EXPECT_NEAR(out[i], 65504.0F / (1.0F + std::exp(-gate)), 40.0F) << "element " << i;
  }
}

TEST_P(cuda_attention, refuses_pages_that_do_not_hold_the_rows) {
  auto device = cuda();
  auto const cache = device->make_kv_cache(demo_shape, 1, 4);
  auto const norm = device->make_constants(std::vector<float>(256));
  ops::tensor const kv = device.make(row_kind::stream, 65, 2048);
  auto const store = [&](std::vector<std::int32_t> const& pages, std::int64_t rows,
                         std::int64_t slot_offset) {
    ops::row_span const span{2, 0, 0, rows, false, pages};
    device->store_kv(*cache, 0, device.set({.spans = {&span, 1}, .slot_offset = slot_offset}),
                     kv.slice_rows(0, rows), *norm);
  };
  EXPECT_NO_THROW(store({3, 0}, 65, 1));
  EXPECT_NO_THROW(store({3}, 64, 0));
  EXPECT_THROW(store({3}, 65, 0), error);
  EXPECT_THROW(store({3}, 64, 1), error);
  EXPECT_THROW(store({}, 1, 0), error);
  EXPECT_THROW(store({4}, 1, 0), error);
  EXPECT_THROW(store({-1}, 1, 0), error);
  EXPECT_THROW(store({3, -1}, 65, 0), error);
  EXPECT_NO_THROW(store({3, -1}, 64, 0));
}

// The first tile of keys is copied before the wait where the pass writes none of it: in a model a
// product stands between those who wrote it and the attention.
TEST(cuda_attention_early, keys_are_read_before_the_wait_where_the_pass_writes_none) {
  if (!test_device_is_emulated()) GTEST_SKIP() << "a GPU does not tell";
  ops::attention_shape const shape{2, 1, 256, 64, 1e7, 1e-6F};
  std::vector<std::int32_t> const pages = {0, 1};
  for (std::int64_t const live : {63, 64}) {
    test_backend device = test_backend::cuda({.attention_tiles = true}, device_kind::with_tiles);
    auto const cache = device->make_kv_cache(shape, 1, 2);
    auto const norm = device->make_constants(std::vector<float>(256));
    ops::pass_limits const limits{.rows = live, .spans = 1, .pages = 2};
    auto const passes = device->make_passes(std::vector<ops::pass_limits>(2, limits));
    ops::row_span const before{0, 0, 0, live, false, pages};
    ops::row_span const next{0, live, 0, 1, false, pages};
    std::vector<ops::pass_setting> const settings = {{passes[0].get(), {.spans = {&before, 1}}},
                                                     {passes[1].get(), {.spans = {&next, 1}}}};
    device->set_passes(settings);
    ops::tensor const kv = device.make(row_kind::stream, live, 2 * 256);
    ops::tensor const q_gate = device.make(row_kind::stream, 1, 2 * 512);
    ops::tensor const out = device.make(row_kind::activation, 1, 2 * 256);
    auto const attend = [&] {
      device->store_kv(*cache, 0, *passes[0], kv, *norm);
      device->store_kv(*cache, 0, *passes[1], kv.slice_rows(0, 1), *norm);
      device->attention(*cache, 0, *passes[1], q_gate, *norm, out);
    };
    if (live % 64 != 0) {
      EXPECT_NO_THROW(attend()) << "the pass writes the tile's last key";
      continue;
    }
    try {
      attend();
      FAIL() << "keys that a launch before may still write were not read";
    } catch (error const& problem) {
      std::string const text = problem.what();
      EXPECT_NE(text.find("a launch reads what one before it writes"), std::string::npos) << text;
    }
  }
}

constexpr ops::attention_shape whole_shape{24, 4, 256, 64, 1e7, 1e-6F};  // of the 27B

/// What an H200 is told to launch for `rows` rows that follow `live` tokens.
launch_counts launches_of(std::int64_t rows, std::int64_t live,
                          ops::attention_shape const& shape = whole_shape) {
  auto const device = std::make_shared<naming_device>(0, qpn::test::hopper_h200());
  auto const backend = ops::cuda::make_backend(device);
  std::vector<std::int32_t> pages(
      static_cast<std::size_t>((live + rows - 1) / ops::kv_page_tokens + 1));
  std::iota(pages.begin(), pages.end(), 0);
  auto const cache = backend->make_kv_cache(shape, 1, std::ssize(pages));
  auto const norm = backend->make_constants(std::vector<float>(256));
  ops::tensor kv, q_gate, out;
  auto const kv_memory = backend->make_tensor(row_kind::stream, rows, shape.num_kv_heads * 512, kv);
  auto const q_memory = backend->make_tensor(row_kind::stream, rows, shape.num_heads * 512, q_gate);
  auto const out_memory =
      backend->make_tensor(row_kind::activation, rows, shape.num_heads * 256, out);
  ops::pass_limits const limits{.rows = rows, .spans = 1, .pages = std::ssize(pages)};
  auto const passes = backend->make_passes({&limits, 1});
  ops::row_span const span{0, live, 0, rows, false, pages};
  ops::pass_setting const setting{passes.front().get(), {.spans = {&span, 1}}};
  backend->set_passes({&setting, 1});
  static_cast<void>(device->take_launches());
  backend->store_and_attend(*cache, 0, *passes.front(), kv, *norm, q_gate, *norm, out);
  return device->take_launches();
}

TEST(cuda_attention_launches, have_ctas_of_few_queries_as_long_as_all_run_at_once) {
  launch_counts const few = {{"attention_few", 1}, {"attention_output", 1}};
  launch_counts const some = {{"prepare_heads", 1}, {"attention_some", 1}, {"attention_output", 1}};
  for (std::int64_t const live : {0, 512, 2048, 32768}) EXPECT_EQ(launches_of(1, live), few);
  // 8 rows are 48 queries of a kv head: three CTAs for each of its partitions, of which an H200
  // takes 11 at once.
  EXPECT_EQ(launches_of(8, 512), few);
  EXPECT_EQ(launches_of(8, 11 * 64 - 8), few);
  EXPECT_EQ(launches_of(8, 11 * 64 - 7), some);
  EXPECT_EQ(launches_of(8, 32768), some);
  // 5 rows are 30 queries.
  launch_counts const pair = {{"prepare_heads", 1}, {"attention_pair", 1}, {"attention_output", 1}};
  EXPECT_EQ(launches_of(5, 16 * 64 - 5), few);
  EXPECT_EQ(launches_of(5, 16 * 64 - 4), pair);
  EXPECT_EQ(launches_of(6, 2048), some);
}

// CTAs of few queries store up to 8 rows themselves, and where partitions have several tiles, if
// all queries are in one CTA.
TEST(cuda_attention_launches, store_other_rows_by_one_of_their_own) {
  launch_counts const alone = {{"store_kv", 1}, {"attention_few", 1}, {"attention_output", 1}};
  launch_counts const few = {{"attention_few", 1}, {"attention_output", 1}};
  EXPECT_EQ(launches_of(8, 64), few);
  EXPECT_EQ(launches_of(9, 64), alone);
  EXPECT_EQ(launches_of(2, 2048, wide_shape), few);
  EXPECT_EQ(launches_of(3, 1021, wide_shape), few);
  EXPECT_EQ(launches_of(3, 1022, wide_shape), alone);
}

TEST_P(cuda_attention, refuses_head_sizes_that_the_kernels_lack) {
  auto device = cuda();
  try {
    auto const cache = device->make_kv_cache({2, 1, 128, 64, 1e7, 1e-6F}, 1, 8);
    FAIL() << "accepted";
  } catch (error const& problem) {
    EXPECT_STREQ(problem.what(), "head_dim 128: the CUDA backend expects 256");
  }
}

INSTANTIATE_TEST_SUITE_P(kernels, cuda_attention, testing::Bool(),
                         [](auto const& parameter) { return parameter.param ? "tiles" : "simt"; });

}  // namespace
}  // namespace qwen38::test

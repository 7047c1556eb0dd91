// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/error.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using ops::row_kind;

constexpr ops::gdn_shape small_shape{1, 3, 128, 128, 4, 1e-6F};

/// Projections of sequences, and the weights of `layers` layers.
class gdn_run {
 public:
  gdn_run(test_backend device, ops::gdn_shape const& shape, std::int64_t rows,
          std::int64_t layers = 1, std::int64_t lanes = 2, std::int64_t snapshots = 0,
          float gates = 1)
      : device_(std::move(device)),
        shape_(shape),
        rows_(rows),
        width_(shape.conv_channels() + shape.value_channels()),
        qkvz_(random_floats(41, rows * width_)),
        ba_(random_floats(42, rows * 2 * shape.num_value_heads, gates)),
        conv_(device_->make_constants(
            random_floats(43, shape.conv_channels() * shape.conv_kernel, 0.5F))),
        a_log_(device_->make_constants(random_floats(44, shape.num_value_heads, 0.5F))),
        dt_bias_(device_->make_constants(random_floats(45, shape.num_value_heads))),
        norm_(device_->make_constants(random_floats(46, shape.value_dim))),
        state(device_->make_gdn_state(shape, layers, lanes, 16, snapshots)) {}

  struct chunk {
    int lane;
    std::int64_t first;
    std::int64_t end;
    bool tentative = false;
  };

  /// The chunks' rows side by side in one pass.
  std::vector<float> pass(std::vector<chunk> const& chunks, std::int64_t layer = 0) {
    std::vector<ops::row_span> spans;
    std::vector<float> qkvz;
    std::vector<float> ba;
    std::int64_t rows = 0;
    auto const append = [&](std::vector<float>& to, std::vector<float> const& from,
                            chunk const& c) {
      auto const width = std::ssize(from) / rows_;
      to.insert(to.end(), from.begin() + c.first * width, from.begin() + c.end * width);
    };
    for (chunk const& c : chunks) {
      spans.push_back({c.lane, c.first, rows, c.end - c.first, c.tentative});
      append(qkvz, qkvz_, c);
      append(ba, ba_, c);
      rows += c.end - c.first;
    }
    ops::pass& p = device_.set({.spans = spans});
    ops::tensor const q = device_.make(row_kind::stream, rows, qkvz);
    ops::tensor const gates = device_.make(row_kind::stream, rows, ba);
    ops::tensor const out = device_.make(row_kind::activation, rows, shape_.value_channels());
    device_->gdn(*state, layer, p, q, gates,
                 {conv_.get(), a_log_.get(), dt_bias_.get(), norm_.get()}, out);
    return device_.read(out);
  }
  /// Rows [0, end) of lane 1, in passes that end at `cuts`.
  std::vector<float> all(std::vector<std::int64_t> cuts = {}) {
    cuts.push_back(rows_);
    std::vector<float> out;
    std::int64_t first = 0;
    for (std::int64_t cut : cuts) {
      auto const part = pass({{1, first, cut}});
      out.insert(out.end(), part.begin(), part.end());
      first = cut;
    }
    return out;
  }
  ops::backend& device() { return *device_; }
  [[nodiscard]] std::size_t width() const {
    return static_cast<std::size_t>(shape_.value_channels());
  }

 private:
  test_backend device_;
  ops::gdn_shape shape_;
  std::int64_t rows_;
  std::int64_t width_;
  std::vector<float> qkvz_;
  std::vector<float> ba_;
  std::unique_ptr<ops::constants> conv_, a_log_, dt_bias_, norm_;

 public:
  std::unique_ptr<ops::gdn_state> state;
};

/// Rows [first, end) of a result.
std::span<float const> rows_of(std::vector<float> const& all, std::size_t width, std::int64_t first,
                               std::int64_t end) {
  return std::span(all).subspan(static_cast<std::size_t>(first) * width,
                                static_cast<std::size_t>(end - first) * width);
}

TEST(cuda_gdn, agrees_with_the_cpu) {
  for (ops::gdn_shape const& shape :
       {small_shape, ops::gdn_shape{2, 4, 128, 40, 4, 1e-6F},
        ops::gdn_shape{2, 2, 128, 256, 3, 1e-6F}, ops::gdn_shape{1, 1, 128, 8, 1, 1e-6F}}) {
    for (std::int64_t rows : {1, 37}) {
      auto const wanted = gdn_run(test_backend::cpu(), shape, rows).all();
      auto const got = gdn_run(test_backend::cuda(), shape, rows).all();
      EXPECT_LT(relative_error(got, wanted), 1e-3)
          << "value_dim " << shape.value_dim << ", rows " << rows;
    }
  }
}

TEST(cuda_gdn, any_chunking_gives_the_same_bits) {
  auto const whole = gdn_run(test_backend::cuda(), small_shape, 50).all();
  EXPECT_TRUE(
      same_bits(whole, gdn_run(test_backend::cuda(), small_shape, 50).all({1, 2, 3, 4, 5})));
  EXPECT_TRUE(same_bits(whole, gdn_run(test_backend::cuda(), small_shape, 50).all({16, 17, 49})));
}

TEST(cuda_gdn, lanes_side_by_side_change_no_bit) {
  gdn_run alone(test_backend::cuda(), small_shape, 40);
  auto const wanted = alone.all();
  gdn_run run(test_backend::cuda(), small_shape, 40, 1, 5);
  run.pass({{4, 0, 3}, {1, 0, 20}, {2, 7, 9}});
  auto const out = run.pass({{0, 0, 5, true}, {1, 20, 32}, {4, 3, 4}, {3, 1, 2}});
  EXPECT_TRUE(same_bits(rows_of(out, run.width(), 5, 17), rows_of(wanted, run.width(), 20, 32)));
  EXPECT_TRUE(same_bits(rows_of(out, run.width(), 0, 5), rows_of(wanted, run.width(), 0, 5)));
  EXPECT_TRUE(same_bits(rows_of(out, run.width(), 17, 18), rows_of(wanted, run.width(), 3, 4)));
}

TEST(cuda_gdn, keeping_part_of_a_tentative_pass_equals_never_having_seen_the_rest) {
  auto const wanted = gdn_run(test_backend::cuda(), small_shape, 40).all();
  for (std::int64_t kept : {0, 1, 2, 3, 4, 7, 8}) {
    gdn_run run(test_backend::cuda(), small_shape, 40);
    run.pass({{1, 0, 20}});
    auto const tentative = run.pass({{1, 20, 28, true}});
    EXPECT_TRUE(same_bits(tentative, rows_of(wanted, run.width(), 20, 28)));
    run.device().gdn_keep(*run.state, 1, kept);
    auto const rest = run.pass({{1, 20 + kept, 40}});
    EXPECT_TRUE(same_bits(rest, rows_of(wanted, run.width(), 20 + kept, 40))) << "kept " << kept;
  }
}

TEST(cuda_gdn, layers_keep_their_states_apart) {
  auto const wanted = gdn_run(test_backend::cuda(), small_shape, 24).all();
  gdn_run run(test_backend::cuda(), small_shape, 24, 3);
  for (std::int64_t layer : {2, 0}) run.pass({{1, 0, 10}}, layer);
  for (std::int64_t layer : {0, 2}) run.pass({{1, 10, 16, true}}, layer);
  run.device().gdn_keep(*run.state, 1, 4);
  for (std::int64_t layer : {0, 2}) {
    EXPECT_TRUE(same_bits(run.pass({{1, 14, 24}}, layer), rows_of(wanted, run.width(), 14, 24)))
        << "layer " << layer;
  }
}

TEST(cuda_gdn, a_reset_lane_starts_from_nothing_and_leaves_its_neighbour_alone) {
  gdn_run run(test_backend::cuda(), small_shape, 12, 2);
  auto const wanted = run.all();
  run.pass({{0, 0, 6}});
  run.device().gdn_reset(*run.state, 1);
  EXPECT_TRUE(same_bits(run.pass({{1, 0, 12}}), wanted));
  EXPECT_TRUE(same_bits(run.pass({{0, 6, 12}}), rows_of(wanted, run.width(), 6, 12)));
}

TEST(cuda_gdn, a_snapshot_is_the_lanes_state_to_the_bit_and_stays_as_it_was) {
  gdn_run run(test_backend::cuda(), small_shape, 30, 2, 2, 3);
  auto const wanted = gdn_run(test_backend::cuda(), small_shape, 30).all();
  for (std::int64_t layer : {0, 1}) run.pass({{0, 0, 17}}, layer);
  run.device().gdn_save(*run.state, 0, 2);
  run.pass({{0, 17, 30}}, 1);
  for (int lane : {1, 0, 1}) {  // into another lane, over the lane's own later state, and again
    run.device().gdn_load(*run.state, lane, 2);
    for (std::int64_t layer : {0, 1}) {
      EXPECT_TRUE(
          same_bits(run.pass({{lane, 17, 30}}, layer), rows_of(wanted, run.width(), 17, 30)))
          << "lane " << lane << ", layer " << layer;
    }
  }
  EXPECT_THROW(run.device().gdn_save(*run.state, 0, 3), error);
  EXPECT_THROW(run.device().gdn_load(*run.state, 0, -1), error);
}

/// On tensor cores, where whole chunks of 64 rows are computed at once.
test_backend chunked_backend() {
  return test_backend::cuda({}, device_kind::with_tiles);
}

constexpr ops::gdn_shape grouped_shape{2, 6, 128, 64, 4, 1e-6F};
constexpr std::int64_t chunked_rows = 2 * 64 + 5;

// Operands are rounded to fp16 once. Gates of scale 30 are all but 0 and 1: where a row cancels
// what the state has, the norm makes the more of the roundings.
TEST(cuda_gdn_chunks, agree_with_the_cpu) {
  for (ops::gdn_shape const& shape : {small_shape, grouped_shape}) {
    for (float gates : {1.0F, 30.0F}) {
      auto const wanted = gdn_run(test_backend::cpu(), shape, chunked_rows, 1, 2, 0, gates).all();
      gdn_run run(chunked_backend(), shape, chunked_rows, 1, 2, 0, gates);
      auto const got = run.all();
      double worst = 0;
      for (std::int64_t row = 0; row < chunked_rows; ++row) {
        double const error = relative_error(rows_of(got, run.width(), row, row + 1),
                                            rows_of(wanted, run.width(), row, row + 1));
        EXPECT_LT(error, gates > 1 ? 1e-2 : 2e-3)
            << "value_dim " << shape.value_dim << ", gates " << gates << ", row " << row;
        worst = std::max(worst, error);
      }
      RecordProperty("worst_" + std::to_string(shape.value_dim) + "_gates_" +
                         std::to_string(static_cast<int>(gates)),
                     std::to_string(worst));
    }
  }
}

TEST(cuda_gdn_chunks, cuts_at_multiples_of_64_change_no_bit) {
  auto const whole = gdn_run(chunked_backend(), small_shape, chunked_rows).all();
  using cuts = std::vector<std::int64_t>;
  for (cuts const& at : {cuts{64}, cuts{128}, cuts{64, 128}}) {
    EXPECT_TRUE(same_bits(whole, gdn_run(chunked_backend(), small_shape, chunked_rows).all(at)))
        << "first cut " << at[0] << " of " << at.size();
  }
}

// The pass of a long prompt.
TEST(cuda_gdn_chunks, many_in_a_pass_are_those_of_one_pass_each) {
  std::int64_t const chunks = test_device_is_emulated() ? 3 : 7;
  std::int64_t const rows = 64 * chunks + 9;
  auto const whole = gdn_run(chunked_backend(), grouped_shape, rows).all();
  std::vector<std::int64_t> cuts;
  for (std::int64_t chunk = 1; chunk <= chunks; ++chunk) cuts.push_back(64 * chunk);
  EXPECT_TRUE(same_bits(whole, gdn_run(chunked_backend(), grouped_shape, rows).all(cuts)));
  auto const wanted = gdn_run(test_backend::cpu(), grouped_shape, rows).all();
  EXPECT_LT(relative_error(whole, wanted), 2e-3);
}

TEST(cuda_gdn_chunks, lanes_side_by_side_change_no_bit) {
  auto const wanted = gdn_run(chunked_backend(), small_shape, chunked_rows).all();
  gdn_run run(chunked_backend(), small_shape, chunked_rows, 1, 4);
  run.pass({{2, 0, 3}, {1, 0, 64}, {0, 0, 67}});
  auto const out = run.pass({{3, 0, 5, true}, {1, 64, 133}, {2, 3, 4}, {0, 67, 70}});
  EXPECT_TRUE(same_bits(rows_of(out, run.width(), 5, 74), rows_of(wanted, run.width(), 64, 133)));
}

// What follows a prompt is computed row by row, tentative or not.
TEST(cuda_gdn_chunks, keeping_part_of_a_tentative_pass_equals_never_having_seen_the_rest) {
  auto const wanted = gdn_run(chunked_backend(), small_shape, 90).all({70, 71, 90});
  for (std::int64_t kept : {0, 3, 8}) {
    gdn_run run(chunked_backend(), small_shape, 90);
    run.pass({{1, 0, 70}});
    EXPECT_TRUE(same_bits(run.pass({{1, 70, 78, true}}), rows_of(wanted, run.width(), 70, 78)));
    run.device().gdn_keep(*run.state, 1, kept);
    auto const rest = run.pass({{1, 70 + kept, 90}});
    EXPECT_TRUE(same_bits(rest, rows_of(wanted, run.width(), 70 + kept, 90))) << "kept " << kept;
  }
}

TEST(cuda_gdn_chunks, go_on_from_a_snapshot_with_the_same_bits) {
  auto const wanted = gdn_run(chunked_backend(), small_shape, chunked_rows).all();
  gdn_run run(chunked_backend(), small_shape, chunked_rows, 1, 2, 1);
  run.pass({{0, 0, 64}});
  run.device().gdn_save(*run.state, 0, 0);
  run.pass({{0, 64, 90}});
  run.device().gdn_load(*run.state, 1, 0);
  EXPECT_TRUE(same_bits(run.pass({{1, 64, 133}}), rows_of(wanted, run.width(), 64, 133)));
}

TEST(cuda_gdn, refuses_more_tentative_rows_than_a_record_holds) {
  gdn_run run(test_backend::cuda(), small_shape, 20);
  EXPECT_NO_THROW(run.pass({{0, 0, 16, true}}));
  EXPECT_THROW(run.pass({{0, 0, 17, true}}), error);
}

TEST(cuda_gdn, refuses_head_sizes_that_the_kernels_lack) {
  auto device = test_backend::cuda();
  auto const sentence = [&](ops::gdn_shape const& shape) {
    try {
      auto const made = device->make_gdn_state(shape, 1, 1, 1, 0);
    } catch (error const& problem) {
      return std::string(problem.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(sentence({1, 1, 64, 128, 4, 1e-6F}),
            "linear_key_head_dim 64: the CUDA backend expects 128");
  EXPECT_EQ(sentence({1, 1, 128, 12, 4, 1e-6F}),
            "linear_value_head_dim 12: the CUDA backend expects a multiple of 8 of at most 256");
}

}  // namespace
}  // namespace qwen38::test

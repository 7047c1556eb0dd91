// SPDX-License-Identifier: Apache-2.0
// One launch for a pass of short spans against the four that it stands for: output, state, columns
// and record to the bit.

#include "ops/cuda/gdn_short.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/device_gdn_state.hpp"
#include "ops/cuda/device_pass.hpp"
#include "test/ops/cuda/naming_device.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using namespace ops::cuda;

struct span_rows {
  int lane = 0;
  std::int64_t rows = 1;
  bool tentative = false;
};

struct short_case {
  gdn_sizes sizes{1, 3, 128, 4, 1e-6F};
  std::vector<span_rows> spans;
  std::int64_t added = 0;  ///< rows that fill the pass up, and then a span without rows
  bool half = true;        ///< out is fp16
  float gates = 1;         ///< scale of b and a
};

constexpr int lanes = 4;
constexpr int layers = 2;
constexpr std::int64_t layer = 1;
constexpr int record_rows = 16;

/// Everything that a layer's launches write, on a device of its own.
class gdn_work {
 public:
  gdn_work(short_case const& of, std::uint64_t seed) : gpu_(open_test_device()), seed_(seed) {
    gdn_sizes const& g = of.sizes;
    set_pass(of);
    std::int64_t const states = layers * lanes;
    std::int64_t const records = states * record_rows;
    memory_.sizes = g;
    memory_.lanes = lanes;
    memory_.record_rows = record_rows;
    memory_.first = {random(states * memory_.s_values()),
                     random(states * memory_.conv_values()),
                     random(records * g.channels()),
                     {random(records * g.channels()), random(records * g.value_heads),
                      random(records * g.value_heads)}};
    std::int64_t const out_stride = g.value_channels() + 8;
    out_ = {random(rows_ * out_stride), out_stride, of.half};
    written_ = blocks_.size();
    inputs_.pass = as_device(*passes_.front()).view();
    inputs_.memory = memory_;
    inputs_.layer = layer;
    inputs_.qkvz_stride = g.channels() + g.value_channels() + 4;
    inputs_.qkvz = random(rows_ * inputs_.qkvz_stride);
    inputs_.ba_stride = 2 * g.value_heads + 3;
    inputs_.ba = random(rows_ * inputs_.ba_stride, of.gates);
    inputs_.taps = random(g.channels() * g.kernel, 0.5F);
    inputs_.a_log = random(g.value_heads, 0.5F);
    inputs_.dt_bias = random(g.value_heads);
    w_ = random(g.value_dim);
    arrivals_ = make_array<std::uint32_t>(*gpu_, lanes * g.key_heads, "arrivals");
  }

  void run_four() {
    gdn_sizes const& g = memory_.sizes;
    gdn_prepare_params prepare = inputs_;
    prepare.scratch = {random(rows_ * g.channels()), random(rows_ * g.value_heads),
                       random(rows_ * g.value_heads)};
    prepare.rows = rows_;
    gpu_->launch(prepare);
    gdn_recurrence_params<1> recurrence;
    recurrence.pass = inputs_.pass;
    recurrence.memory = memory_;
    recurrence.scratch = prepare.scratch;
    recurrence.layer = layer;
    recurrence.out = random(rows_ * g.value_channels());
    gpu_->launch(recurrence);
    gdn_norm_params norm;
    norm.sizes = g;
    norm.o = recurrence.out;
    norm.z = inputs_.qkvz + g.channels();
    norm.z_stride = inputs_.qkvz_stride;
    norm.w = w_;
    norm.out = out_;
    norm.rows = own_rows_;
    gpu_->launch(norm);
    gdn_shift_params shift;
    shift.pass = inputs_.pass;
    shift.memory = memory_;
    shift.layer = layer;
    shift.qkvz = inputs_.qkvz;
    shift.qkvz_stride = inputs_.qkvz_stride;
    gpu_->launch(shift);
  }
  /// @param state_is_there  no launch before may still write it
  template <int Ctas>
  void run_one(bool state_is_there) {
    gdn_short_params<Ctas> kernel;
    kernel.pass = inputs_.pass;
    kernel.memory = memory_;
    kernel.layer = layer;
    kernel.qkvz = inputs_.qkvz;
    kernel.qkvz_stride = inputs_.qkvz_stride;
    kernel.ba = inputs_.ba;
    kernel.ba_stride = inputs_.ba_stride;
    kernel.taps = inputs_.taps;
    kernel.a_log = inputs_.a_log;
    kernel.dt_bias = inputs_.dt_bias;
    kernel.w = w_;
    kernel.arrivals = arrivals_.as<std::uint32_t>();
    kernel.out = out_;
    kernel.state_is_there = state_is_there;
    kernel.ahead = {blocks_.front().as(), blocks_.front().bytes() / 16 * 16};
    gpu_->launch(kernel);
  }

  /// Whether the device and the sizes allow clusters.
  [[nodiscard]] bool has_clusters() const {
    return gpu_->has_clusters() && gdn_short_params<2>::has_sizes(memory_.sizes);
  }

  /// S, columns, raw, mixed, decay, beta, and the output with what lies between its rows.
  [[nodiscard]] std::vector<std::vector<float>> written() const {
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < written_; ++i) {
      auto& values = all.emplace_back(blocks_[i].bytes() / sizeof(float));
      gpu_->download(values.data(), {blocks_[i].as(), blocks_[i].bytes()}, blocks_[i].bytes(), 1);
    }
    return all;
  }
  [[nodiscard]] bool all_arrivals_are_0() const {
    std::vector<std::uint32_t> counts(arrivals_.bytes() / sizeof(std::uint32_t), 7);
    gpu_->download(counts.data(), {arrivals_.as(), arrivals_.bytes()}, arrivals_.bytes(), 1);
    return std::ranges::all_of(counts, [](std::uint32_t count) { return count == 0; });
  }

 private:
  void set_pass(short_case const& of) {
    std::vector<ops::row_span> spans;
    std::int64_t longest = 0;
    for (span_rows const& one : of.spans) {
      spans.push_back({one.lane, 100, own_rows_, one.rows, one.tentative});
      own_rows_ += one.rows;
      longest = std::max(longest, one.rows);
    }
    rows_ = own_rows_ + of.added;
    ops::pass_limits const limits{rows_, std::ssize(spans) + 1, 1, 1};
    passes_ = pass_block::make_passes(*gpu_, {&limits, 1});
    ops::pass_setting setting{passes_.front().get(), {.spans = spans}};
    if (of.added > 0) setting.rows.size = {rows_, std::ssize(spans) + 1, longest, 200, 0};
    as_device(*passes_.front()).block().set({&setting, 1});
  }
  float* random(std::int64_t count, float scale = 1) {
    device_block& block = blocks_.emplace_back(make_array<float>(*gpu_, count, "numbers"));
    std::uint64_t const seed = seed_ + blocks_.size();
    gpu_->upload(block.as(), random_floats(seed, count, scale).data(), block.bytes());
    return block.as<float>();
  }

  std::unique_ptr<device> gpu_;
  std::uint64_t seed_;
  std::int64_t own_rows_ = 0;
  std::int64_t rows_ = 0;  ///< with those that fill up
  std::vector<std::unique_ptr<ops::pass>> passes_;
  gdn_memory memory_;
  std::vector<device_block> blocks_;
  std::size_t written_ = 0;
  gdn_prepare_params inputs_;
  float* w_ = nullptr;
  output_rows out_;
  device_block arrivals_;
};

/// @tparam Ctas  of a head
template <int Ctas>
void expect_bits_of_four(short_case const& of, std::uint64_t seed, int passes) {
  std::string text = "seed " + std::to_string(seed) + ", " + std::to_string(Ctas) +
                     " CTAs a head, value_dim " + std::to_string(of.sizes.value_dim) + ", spans of";
  for (span_rows const& span : of.spans) {
    text.append(" ").append(std::to_string(span.rows)).append(span.tentative ? " tentative" : "");
  }
  gdn_work four(of, seed);
  gdn_work one(of, seed);
  if (Ctas != 1 && !one.has_clusters()) return;
  for (int pass = 0; pass < passes; ++pass) {
    four.run_four();
    one.run_one<Ctas>(pass == 0);  // the first one comes behind uploads
  }
  auto const wanted = four.written();
  auto const got = one.written();
  char const* const names[] = {"S", "columns", "raw", "mixed", "decay", "beta", "output"};
  ASSERT_EQ(got.size(), std::size(names));
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same_bits(got[i], wanted[i])) << names[i] << ": " << text;
  }
  EXPECT_TRUE(one.all_arrivals_are_0()) << text;
}
void expect_the_same_bits(short_case const& of, std::uint64_t seed, int passes = 1) {
  expect_bits_of_four<1>(of, seed, passes);
  expect_bits_of_four<2>(of, seed, passes);
}

TEST(cuda_gdn_short, has_the_bits_of_four_launches_whatever_the_rows) {
  for (std::int64_t rows = 1; rows <= gdn_short_params<1>::most_rows; ++rows) {
    for (bool tentative : {false, true}) {
      expect_the_same_bits({{1, 2, 16, 4, 1e-6F}, {{2, rows, tentative}}},
                           static_cast<std::uint64_t>(100 * rows));
    }
  }
}

TEST(cuda_gdn_short, has_the_bits_of_four_launches_whatever_the_sizes) {
  std::vector<span_rows> const spans = {{3, 2}, {0, 5, true}, {1, 1}};
  for (gdn_sizes const& sizes : {gdn_sizes{1, 3, 128, 4, 1e-6F}, gdn_sizes{2, 4, 40, 4, 1e-5F},
                                 gdn_sizes{2, 2, 8, 4, 1e-6F}, gdn_sizes{1, 1, 120, 4, 1e-6F}}) {
    for (bool half : {true, false}) expect_the_same_bits({sizes, spans, 0, half}, 7);
  }
}

TEST(cuda_gdn_short, has_the_bits_of_four_launches_with_gates_that_are_all_but_0_and_1) {
  expect_the_same_bits({{1, 3, 128, 4, 1e-6F}, {{0, 6}, {1, 3, true}}, 0, true, 30.0F}, 11);
}

TEST(cuda_gdn_short, goes_on_from_its_own_state) {
  expect_the_same_bits({{1, 3, 128, 4, 1e-6F}, {{1, 1}, {2, 3}}}, 13, 3);
}

TEST(cuda_gdn_short, leaves_rows_that_fill_up_alone) {
  expect_the_same_bits({{1, 3, 64, 4, 1e-6F}, {{2, 1}, {1, 2, true}}, 3}, 17);
}

TEST(cuda_gdn_short, has_the_bits_of_four_launches_at_full_size) {
  int const key_heads = test_device_is_emulated() ? 1 : 16;  // 48 value heads would take minutes
  gdn_sizes const sizes{key_heads, 3 * key_heads, 128, 4, 1e-6F};
  expect_the_same_bits({sizes, {{0, 1}}}, 19, 5);
  expect_the_same_bits({sizes, {{0, 8, true}, {1, 16}, {2, 1}, {3, 5}}}, 23, 5);
}

/// A pass over these spans, on a device that computes nothing.
std::vector<std::unique_ptr<ops::pass>> make_pass(device& counted,
                                                  std::span<ops::row_span const> spans) {
  std::int64_t const rows = spans.back().first_row + spans.back().rows;
  ops::pass_limits const limits{rows, std::ssize(spans), 1, 1};
  auto passes = pass_block::make_passes(counted, {&limits, 1});
  ops::pass_setting const setting{passes.front().get(), {.spans = spans}};
  as_device(*passes.front()).block().set({&setting, 1});
  return passes;
}

/// What a V100 is told to launch for spans of so many rows.
launch_counts launches_of(ops::gdn_shape const& shape, std::vector<std::int64_t> const& span_rows,
                          bool in_one_launch = true) {
  naming_device counted;
  std::vector<ops::row_span> spans;
  std::int64_t rows = 0;
  for (std::int64_t one : span_rows) {
    spans.push_back({static_cast<int>(spans.size()), 0, rows, one, false});
    rows += one;
  }
  auto const passes = make_pass(counted, spans);
  device_gdn_state state(counted, shape, 1, std::ssize(spans), 0, 0, in_one_launch);
  static_cast<void>(counted.take_launches());
  state.run(0, as_device(*passes.front()), {}, {}, {}, {});
  return counted.take_launches();
}

TEST(cuda_gdn_short, would_read_too_early_what_the_launch_before_writes) {
  if (!test_device_is_emulated()) GTEST_SKIP() << "a GPU does not tell";
  gdn_work work({gdn_sizes{1, 3, 16, 4, 1e-6F}, {{0, 1}}}, 29);
  work.run_one<1>(true);  // behind uploads
  work.run_one<1>(false);
  try {
    work.run_one<1>(true);
    FAIL() << "the state was read";
  } catch (error const& problem) {
    std::string const text = problem.what();
    EXPECT_NE(text.find("a launch reads what one before it writes, before it waits for that"),
              std::string::npos)
        << text;
  }
}

TEST(cuda_gdn_short, reads_the_state_early_behind_a_product_alone) {
  naming_device counted;
  ops::row_span const span{0, 0, 0, 1, false};
  auto const passes = make_pass(counted, {&span, 1});
  device_gdn_state state(counted, {1, 3, 128, 128, 4, 1e-6F}, 1, 1, 4, 1, true);
  auto const run_early = [&] {
    std::int64_t const before = counted.early_states();
    state.run(0, as_device(*passes.front()), {}, {}, {}, {});
    return counted.early_states() > before;
  };
  EXPECT_FALSE(run_early()) << "nothing says that what cleared the state has ended";
  counted.note_border();
  EXPECT_TRUE(run_early());
  EXPECT_FALSE(run_early()) << "the launch before writes it";
  for (auto const& write : std::vector<std::function<void()>>{
           [&] { state.keep(0, 1); }, [&] { state.reset(0); }, [&] { state.load(0, 0); }}) {
    counted.note_border();
    write();
    EXPECT_FALSE(run_early());
    counted.note_border();
    EXPECT_TRUE(run_early());
  }
  counted.note_border();
  state.save(0, 0);
  EXPECT_TRUE(run_early()) << "saving only reads";
}

TEST(cuda_gdn_short, has_two_ctas_a_head_while_each_has_a_multiprocessor) {
  auto const clusters_of = [](qpn::device_info const& gpu, std::int64_t heads, int spans,
                              std::int64_t value_dim = 128) {
    naming_device counted(0, gpu);
    std::vector<ops::row_span> rows;
    for (int i = 0; i < spans; ++i) rows.push_back({i, 0, i, 1, false});
    auto const passes = make_pass(counted, rows);
    device_gdn_state state(counted, {heads / 3, heads, 128, value_dim, 4, 1e-6F}, 1, spans, 0, 0,
                           true);
    state.run(0, as_device(*passes.front()), {}, {}, {}, {});
    return counted.clusters();
  };
  qpn::device_info const h200 = qpn::test::hopper_h200();
  EXPECT_EQ(clusters_of(h200, 48, 1), 1);
  EXPECT_EQ(clusters_of(h200, 66, 1), 1);
  EXPECT_EQ(clusters_of(h200, 69, 1), 0);
  EXPECT_EQ(clusters_of(h200, 48, 2), 0);
  EXPECT_EQ(clusters_of(h200, 12, 5), 1);
  EXPECT_EQ(clusters_of(h200, 48, 1, 120), 0) << "no two halves of whole warps";
  EXPECT_EQ(clusters_of(qpn::test::volta_v100(), 12, 1), 0);
}

TEST(cuda_gdn_short, is_launched_for_spans_that_are_all_short) {
  launch_counts const one = {{"gdn_short", 1}};
  launch_counts const four = {
      {"gdn_prepare", 1}, {"gdn_recurrence", 1}, {"gdn_norm", 1}, {"gdn_shift", 1}};
  ops::gdn_shape const shape{1, 3, 128, 128, 4, 1e-6F};
  EXPECT_EQ(launches_of(shape, {1, 8, 2}), one);
  EXPECT_EQ(launches_of(shape, {1, 9, 2}), four);
  EXPECT_EQ(launches_of(shape, {1}, false), four);
  EXPECT_EQ(launches_of({1, 3, 128, 136, 4, 1e-6F}, {1}), four);
  EXPECT_EQ(launches_of({1, 3, 128, 128, 3, 1e-6F}, {1}), four);
  EXPECT_EQ(gdn_short_params<1>::most_rows_on(90), 16);
}

}  // namespace
}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
// gdn_short on the emulator with checked memory, its CTAs interleaved: what it may touch, that no
// CTA changes columns which another one still reads, and that what it relies on is relied on.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/cuda/gdn_short.hpp"
#include "support/emulator/emulator.hpp"
#include "test/ops/cuda/program_grid.hpp"

namespace qwen38::test {
namespace {

using namespace ops::cuda;
using qpn::test::region_use;

enum class mistake {
  none,
  no_barrier_before_keys,
  no_barrier_before_rows,
  no_barrier_before_norm,
  no_wait_for_cta,    ///< from here on of clusters alone: the other one may not run yet
  no_outputs_of_cta,  ///< columns of the output are not given to the other one
  first_is_last,      ///< the CTA that arrives first changes the columns
  nobody_is_last,
  counts_on,  ///< arrivals are not 0 again
};

/// What the lanes of a launch did beside its arithmetic.
struct gdn_log {
  std::set<void const*> early_loads;  ///< before they waited
  std::map<std::size_t, int> pieces;  ///< that were asked for, by where they begin
};

/// The operations that gdn_short needs, with a mistake.
class gdn_lane_of_test {
 public:
  gdn_lane_of_test(qpn::test::emulated_lane& lane, mistake made, gdn_log& log)
      : lane_(&lane), made_(made), log_(&log) {}

  [[nodiscard]] int thread() const { return lane_->thread(); }
  [[nodiscard]] int block() const { return lane_->block(); }
  [[nodiscard]] span_entry load(span_entry const* p) {
    // Larger than what the emulator loads at once.
    span_entry span;
    for (std::size_t at = 0; at < sizeof span; at += 8) {
      std::uint64_t const part = lane_->load(reinterpret_cast<std::uint64_t const*>(p) + at / 8);
      std::memcpy(reinterpret_cast<char*>(&span) + at, &part, 8);
    }
    return span;
  }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    if (!waited_) log_->early_loads.insert(p);
    return lane_->load(p);
  }
  template <class T>
  [[nodiscard]] T load_volatile(T const* p) {
    if (!waited_) log_->early_loads.insert(p);
    return lane_->load_volatile(p);
  }
  void wait_previous() { waited_ = true; }
  void fetch_ahead(byte_range /*range*/, std::size_t at) { ++log_->pieces[at]; }
  template <class T>
  void store(T* p, T value) {
    lane_->store(p, value);
  }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    return lane_->template shared_load<T>(offset);
  }
  template <class T>
  void shared_store(int offset, T value) {
    lane_->shared_store(offset, value);
  }
  void sync_block() {
    auto const dropped =
        static_cast<int>(made_) - static_cast<int>(mistake::no_barrier_before_keys);
    if (barriers_++ != dropped) lane_->sync_block();
  }
  // The first barrier of a cluster tells that both run, the second one ends the rows.
  void arrive_cluster() {
    drops_cluster_ = cluster_barriers_ == 0 ? made_ == mistake::no_wait_for_cta
                                            : made_ == mistake::no_barrier_before_norm;
    if (!drops_cluster_) lane_->arrive_cluster();
  }
  void wait_cluster() {
    if (!drops_cluster_) lane_->wait_cluster();
    ++cluster_barriers_;
  }
  void peer_store(int offset, float value) {
    if (made_ == mistake::no_outputs_of_cta) return;
    lane_->cluster_store(lane_->cluster_rank() ^ 1, offset, value);
  }
  void sync_warp() { lane_->sync_warp(); }
  [[nodiscard]] std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
    return lane_->shuffle_xor(value, mask);
  }
  std::uint32_t atomic_wrap(std::uint32_t* p, std::uint32_t last) {
    std::uint32_t const old = lane_->atomic_add(p, 1);
    if (old == last && made_ != mistake::counts_on) lane_->atomic_add(p, ~last);
    if (made_ == mistake::first_is_last) return last - old;
    return made_ == mistake::nobody_is_last ? 0 : old;
  }
  [[nodiscard]] float fma(float a, float b, float c) { return std::fma(a, b, c); }
  [[nodiscard]] float exp(float x) { return std::exp(x); }
  [[nodiscard]] float sqrt(float x) { return std::sqrt(x); }
  [[nodiscard]] float log1p(float x) { return std::log1p(x); }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return qpn::encode_f16(low) | static_cast<std::uint32_t>(qpn::encode_f16(high)) << 16;
  }

 private:
  qpn::test::emulated_lane* lane_;
  mistake made_;
  gdn_log* log_;
  int barriers_ = 0;
  int cluster_barriers_ = 0;
  bool drops_cluster_ = false;
  bool waited_ = false;
};

constexpr gdn_sizes sizes{1, 3, 16, 4, 1e-6F};
constexpr std::int64_t rows = 3;  ///< 2 of lane 1, and a tentative one of lane 0
constexpr int lanes = 2;

/// Arrays that the kernel takes, with their regions.
template <int Ctas>
class gdn_arrays {
 public:
  gdn_arrays() {
    memory.sizes = sizes;
    memory.lanes = lanes;
    memory.record_rows = 2;
    auto const kept = region_use::workspace | region_use::initialised;
    memory.first.s = make("S", lanes * memory.s_values(), kept);
    memory.first.conv = make("columns", lanes * memory.conv_values(), kept);
    memory.first.raw = make("raw", lanes * 2 * sizes.channels(), region_use::output);
    memory.first.record = {make("mixed", lanes * 2 * sizes.channels(), region_use::output),
                           make("decay", lanes * 2 * sizes.value_heads, region_use::output),
                           make("beta", lanes * 2 * sizes.value_heads, region_use::output)};
    kernel.memory = memory;
    kernel.qkvz_stride = sizes.channels() + sizes.value_channels();
    kernel.qkvz = make("qkvz", rows * kernel.qkvz_stride, region_use::data);
    kernel.ba_stride = 2 * sizes.value_heads;
    kernel.ba = make("ba", rows * kernel.ba_stride, region_use::data);
    kernel.taps = make("taps", sizes.channels() * sizes.kernel, region_use::data);
    kernel.a_log = make("a_log", sizes.value_heads, region_use::data);
    kernel.dt_bias = make("dt_bias", sizes.value_heads, region_use::data);
    kernel.w = make("w", sizes.value_dim, region_use::data);
    kernel.out = {make("out", rows * sizes.value_channels(), region_use::output),
                  sizes.value_channels(), false};
    kernel.arrivals = arrivals;
    regions.add_region("arrivals", arrivals, sizeof arrivals, kept);
    kernel.pass.spans = spans;
    kernel.pass.span_count = 2;
    regions.add_region("spans", spans, sizeof spans, region_use::data);
  }

  [[nodiscard]] qpn::test::emulation_report run(mistake made, std::uint64_t seed, int resident) {
    qpn::test::emulation_options options = grid_of(kernel, seed, regions);
    options.resident = resident * Ctas;
    return qpn::test::emulate(options, [&](qpn::test::emulated_lane& lane) {
      gdn_lane_of_test own(lane, made, log);
      run_program(own, kernel);
    });
  }
  [[nodiscard]] bool same_bits(gdn_arrays const& other) const {
    return values == other.values && std::memcmp(arrivals, other.arrivals, sizeof arrivals) == 0;
  }

  gdn_memory memory;
  gdn_short_params<Ctas> kernel;
  gdn_log log;
  qpn::test::emulator_memory regions;
  span_entry spans[2] = {{1, 0, 2, 0, 0, 0, 0, 0}, {0, 2, 1, 1, 0, 0, 0, 0}};
  std::uint32_t arrivals[lanes] = {};
  std::vector<std::vector<float>> values;

 private:
  float* make(std::string const& name, std::int64_t count, region_use use) {
    std::normal_distribution<float> normal;
    auto& made = values.emplace_back(static_cast<std::size_t>(count));
    for (float& value : made) value = normal(random_);
    regions.add_region(name, made.data(), made.size() * sizeof(float), use);
    return made.data();
  }

  std::mt19937_64 random_{5};
};

/// What the right program gives, CTA after CTA.
template <int Ctas>
gdn_arrays<Ctas> const& expected() {
  static gdn_arrays<Ctas> arrays;
  static qpn::test::emulation_report const report = arrays.run(mistake::none, 0, 1);
  EXPECT_TRUE(report.ok()) << report.text();
  return arrays;
}

template <class Ctas>
class gdn_short_program : public ::testing::Test {};
using ctas_of_head =
    ::testing::Types<std::integral_constant<int, 1>, std::integral_constant<int, 2>>;
TYPED_TEST_SUITE(gdn_short_program, ctas_of_head, );

TYPED_TEST(gdn_short_program, gives_the_same_whatever_the_schedule) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    for (int resident : {1, 2, 6}) {
      gdn_arrays<TypeParam::value> arrays;
      auto const report = arrays.run(mistake::none, seed, resident);
      EXPECT_TRUE(report.ok()) << "seed " << seed << ", " << resident
                               << " resident: " << report.text();
      EXPECT_TRUE(arrays.same_bits(expected<TypeParam::value>()))
          << "seed " << seed << ", " << resident << " resident";
      EXPECT_TRUE(qpn::test::all_equal(report.write_counts("out"), 1)) << "seed " << seed;
    }
  }
}

TYPED_TEST(gdn_short_program, every_mistake_is_found) {
  std::vector<mistake> all = {mistake::no_barrier_before_keys, mistake::no_barrier_before_rows,
                              mistake::no_barrier_before_norm, mistake::first_is_last,
                              mistake::nobody_is_last,         mistake::counts_on};
  if (TypeParam::value != 1) {
    all.insert(all.end(), {mistake::no_wait_for_cta, mistake::no_outputs_of_cta});
  }
  for (mistake made : all) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      gdn_arrays<TypeParam::value> arrays;
      auto const report = arrays.run(made, seed, 1);
      EXPECT_FALSE(report.ok() && arrays.same_bits(expected<TypeParam::value>()))
          << "mistake " << static_cast<int>(made) << ", seed " << seed;
    }
  }
}

/// Whether `p` lies in the array.
bool holds(float const* first, std::int64_t count, void const* p) {
  return p >= first && p < first + count;
}

/// Of what is read before the wait, those addresses that a launch before may write.
template <int Ctas>
std::int64_t early_loads_of_inputs(gdn_arrays<Ctas> const& arrays) {
  return std::ranges::count_if(arrays.log.early_loads, [&](void const* p) {
    return holds(arrays.kernel.qkvz, rows * arrays.kernel.qkvz_stride, p) ||
           holds(arrays.kernel.ba, rows * arrays.kernel.ba_stride, p);
  });
}
template <int Ctas>
std::int64_t early_loads_of_state(gdn_arrays<Ctas> const& arrays) {
  return std::ranges::count_if(arrays.log.early_loads, [&](void const* p) {
    return holds(arrays.memory.first.s, lanes * arrays.memory.s_values(), p) ||
           holds(arrays.memory.first.conv, lanes * arrays.memory.conv_values(), p);
  });
}

TYPED_TEST(gdn_short_program, reads_the_state_before_it_waits_where_that_is_there) {
  for (bool const is_there : {false, true}) {
    gdn_arrays<TypeParam::value> arrays;
    arrays.kernel.state_is_there = is_there;
    auto const report = arrays.run(mistake::none, 1, 1);
    EXPECT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(arrays.same_bits(expected<TypeParam::value>()));
    EXPECT_EQ(early_loads_of_inputs(arrays), 0);
    // S by the columns of a lane.
    std::int64_t const all = lanes * (arrays.memory.s_values() / arrays.kernel.lane_columns +
                                      arrays.memory.conv_values());
    EXPECT_EQ(early_loads_of_state(arrays), is_there ? all : 0);
  }
}

TYPED_TEST(gdn_short_program, asks_for_every_piece_of_what_comes_next_once) {
  for (std::size_t const bytes : {std::size_t{0}, std::size_t{16}, ahead_piece_bytes,
                                  ahead_piece_bytes + 16, 1000 * ahead_piece_bytes - 16}) {
    gdn_arrays<TypeParam::value> arrays;
    arrays.kernel.ahead = {reinterpret_cast<std::byte const*>(arrays.kernel.w), bytes};
    auto const report = arrays.run(mistake::none, 1, 1);
    EXPECT_TRUE(report.ok()) << report.text();
    std::map<std::size_t, int> pieces;
    for (std::size_t at = 0; at < bytes; at += ahead_piece_bytes) pieces[at] = 1;
    EXPECT_EQ(arrays.log.pieces, pieces) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
// The kernels between ranks on the emulator with checked memory: the rank is a dimension of the
// grid. A CTA goes through several meetings, as its row of its rank does in successive kernels, so
// that one rank is ahead of another as far as their flags allow.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/peer_gather.hpp"
#include "ops/cuda/peer_reduce.hpp"
#include "test/ops/cuda/peer_lane.hpp"
#include "test/ops/cuda/program_grid.hpp"

namespace qwen38::test {
namespace {

using namespace ops::cuda;
using qpn::test::region_use;

constexpr int meetings = 5;

std::vector<float> random_terms(std::mt19937_64& random, std::int64_t count) {
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    float const magnitude = std::exp2(exponent(random));
    values.push_back(random() % 2 == 0 ? magnitude : -magnitude);
  }
  return values;
}

/// Memory that the ranks' kernels share, [ranks] of each.
struct peer_memory {
  peer_memory(int ranks_, std::int64_t rows_) : ranks(ranks_), rows(rows_) {
    flags.resize(static_cast<std::size_t>(ranks * flag_count()));
  }

  [[nodiscard]] std::int64_t flag_count() const { return (1 + 2 * ranks) * rows; }
  [[nodiscard]] peer_flags flags_of(int rank) {
    std::uint64_t* const first = flags.data() + rank * flag_count();
    return {first, first + rows, first + (1 + ranks) * rows};
  }
  [[nodiscard]] peer_guard guard() { return {&stop, failures.data(), limit_ns}; }

  void add_regions(qpn::test::emulator_memory& memory) {
    memory.add_region("flags", flags.data(), flags.size() * 8,
                      region_use::workspace | region_use::initialised);
    memory.add_region("stop", &stop, sizeof stop, region_use::data);
    memory.add_region("failures", failures.data(), failures.size() * 4,
                      region_use::workspace | region_use::initialised);
  }

  int ranks;
  std::int64_t rows;
  std::vector<std::uint64_t> flags;
  std::vector<std::uint32_t> failures = std::vector<std::uint32_t>(max_peers);
  std::uint32_t stop = 0;
  std::int64_t limit_ns = 4000;  // looks at the clock
};

struct outcome {
  qpn::test::emulation_report report;
  std::vector<std::uint32_t> failures;
  bool is_right = false;
  bool adds_nothing = false;  ///< rank 0's x is what it was before the first meeting

  [[nodiscard]] bool went_well() const {
    return report.ok() && is_right && failures == std::vector<std::uint32_t>(max_peers);
  }
};

struct reduce_case {
  int ranks = 2;
  std::int64_t rows = 1;
  std::int64_t cols = 40;
  peer_mistake made = peer_mistake::none;
  std::uint32_t stop = 0;
  std::int64_t limit_ns = 4000;
};

/// What the rows must hold: terms added in rank order, then to x.
std::vector<float> expected_sums(std::vector<float> x,
                                 std::vector<std::vector<float>> const& terms) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    float sum = terms[0][i];
    for (std::size_t rank = 1; rank < terms.size(); ++rank) sum += terms[rank][i];
    x[i] += sum;
  }
  return x;
}

outcome run_reduce(reduce_case const& of, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto const ranks = static_cast<std::size_t>(of.ranks);
  std::int64_t const count = of.rows * of.cols;
  peer_memory shared(of.ranks, of.rows);
  shared.stop = of.stop;
  shared.limit_ns = of.limit_ns;
  std::int64_t const inbox = 2 * of.ranks * count;
  std::vector<float> inboxes(static_cast<std::size_t>(of.ranks * inbox));
  std::vector<float> const w = random_terms(random, of.cols);
  // [meeting][rank] of terms; each meeting has an x of its own, that all ranks begin with.
  std::vector<std::vector<std::vector<float>>> terms(meetings);
  std::vector<std::vector<std::vector<float>>> x(meetings);
  std::vector<std::vector<float>> wanted;
  std::vector<float> first;
  std::vector<std::vector<float>> y(ranks, std::vector<float>(static_cast<std::size_t>(count)));
  for (int meeting = 0; meeting < meetings; ++meeting) {
    auto const at = static_cast<std::size_t>(meeting);
    for (int rank = 0; rank < of.ranks; ++rank) terms[at].push_back(random_terms(random, count));
    std::vector<float> const before = random_terms(random, count);
    x[at].assign(ranks, before);
    if (meeting == 0) first = before;
    wanted.push_back(expected_sums(before, terms[at]));
  }

  qpn::test::emulator_memory memory;
  shared.add_regions(memory);
  memory.add_region("inboxes", inboxes.data(), inboxes.size() * 4, region_use::workspace);
  memory.add_region("w", w.data(), w.size() * 4, region_use::data);
  std::vector<peer_reduce_params> kernels(meetings);
  for (std::size_t meeting = 0; meeting < kernels.size(); ++meeting) {
    peer_reduce_params& kernel = kernels[meeting];
    for (int rank = 0; rank < of.ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      std::string const name = std::to_string(meeting) + " of rank " + std::to_string(rank);
      memory.add_region("terms " + name, terms[meeting][at].data(), terms[meeting][at].size() * 4,
                        region_use::data);
      memory.add_region("x " + name, x[meeting][at].data(), x[meeting][at].size() * 4,
                        region_use::workspace | region_use::initialised);
      if (meeting == 0) {
        memory.add_region("y of rank " + std::to_string(rank), y[at].data(), y[at].size() * 4,
                          region_use::output);
      }
      // Only the last meeting's norm is looked at.
      bool const has_norm = meeting + 1 == kernels.size();
      kernel.of[rank] = {terms[meeting][at].data(),     x[meeting][at].data(),
                         has_norm ? w.data() : nullptr, y[at].data(),
                         inboxes.data() + rank * inbox, shared.flags_of(rank)};
    }
    kernel.ranks = of.ranks;
    kernel.grid_ranks = of.ranks;
    kernel.rows = of.rows;
    kernel.cols = of.cols;
    kernel.partial_stride = of.cols;
    kernel.x_stride = of.cols;
    kernel.y_stride = of.cols;
    kernel.eps = 1e-6F;
    kernel.inbox_rows = of.rows;
    kernel.inbox_cols = of.cols;
    kernel.guard = shared.guard();
  }
  peer_setting setting;
  setting.made = of.made;
  setting.ranks = of.ranks;
  setting.inboxes = reinterpret_cast<std::uintptr_t>(inboxes.data());
  setting.inbox_bytes = static_cast<std::uintptr_t>(inbox) * 4;
  outcome result;
  result.report =
      qpn::test::emulate(grid_of(kernels[0], seed, memory), [&](qpn::test::emulated_lane& lane) {
        peer_lane own(lane, setting);
        for (peer_reduce_params const& kernel : kernels) {
          run_program(own, kernel);
          own.sync_block();
        }
      });
  result.failures = shared.failures;
  result.adds_nothing = x[0][0] == first;
  result.is_right = true;
  for (std::size_t meeting = 0; meeting < wanted.size(); ++meeting) {
    for (std::vector<float> const& got : x[meeting]) {
      result.is_right = result.is_right && std::memcmp(got.data(), wanted[meeting].data(),
                                                       got.size() * sizeof(float)) == 0;
    }
  }
  for (std::int64_t r = 0; r < of.rows; ++r) {
    double squares = 0;
    float const* const row = wanted.back().data() + r * of.cols;
    for (std::int64_t i = 0; i < of.cols; ++i) squares += static_cast<double>(row[i]) * row[i];
    double const scale = 1 / std::sqrt(squares / static_cast<double>(of.cols) + 1e-6);
    for (std::int64_t i = 0; i < of.cols; ++i) {
      double const norm = row[i] * scale * (1.0 + w[static_cast<std::size_t>(i)]);
      for (std::vector<float> const& got : y) {
        double const off = got[static_cast<std::size_t>(r * of.cols + i)] - norm;
        result.is_right = result.is_right && std::abs(off) <= 1e-5 * std::abs(norm) + 1e-30;
      }
    }
  }
  return result;
}

TEST(peer_reduce, every_rank_gets_the_ordered_sum_and_its_norm) {
  for (reduce_case const& of : {reduce_case{2, 1, 40}, {3, 2, 33}, {4, 1, 1030}}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      outcome const got = run_reduce(of, seed);
      EXPECT_TRUE(got.went_well()) << of.ranks << " ranks, " << of.rows << " rows, " << of.cols
                                   << " columns, seed " << seed << ": " << got.report.text();
    }
  }
}

TEST(peer_reduce, every_mistake_is_found) {
  for (peer_mistake made : {peer_mistake::no_release, peer_mistake::no_acquire,
                            peer_mistake::flag_too_high, peer_mistake::one_half}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      outcome const got = run_reduce({3, 2, 33, made}, seed);
      EXPECT_FALSE(got.went_well()) << "mistake " << static_cast<int>(made) << ", seed " << seed;
    }
  }
}

TEST(peer_reduce, a_rank_that_does_not_come_ends_the_wait_and_is_named) {
  outcome const got = run_reduce({3, 1, 8, peer_mistake::flag_lost, 0, 20}, 1);
  EXPECT_FALSE(got.is_right);
  EXPECT_TRUE(got.adds_nothing);
  EXPECT_EQ(got.failures[0], 2U);  // 1 + rank 1
  EXPECT_EQ(got.failures[2], 2U);
}

TEST(peer_reduce, a_stopped_group_waits_no_longer) {
  outcome const got = run_reduce({2, 1, 8, peer_mistake::flag_lost, 1, 1 << 30}, 1);
  EXPECT_EQ(got.failures[0], stopped_wait | 2U);
}

struct gather_case {
  int ranks = 2;
  std::int64_t rows = 1;
  std::int64_t words = 7;
  bool to_all = false;
  peer_mistake made = peer_mistake::none;
};

outcome run_gather(gather_case const& of, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto const ranks = static_cast<std::size_t>(of.ranks);
  peer_memory shared(of.ranks, of.rows);
  std::size_t const count = static_cast<std::size_t>(of.rows * of.words);
  std::vector<std::vector<std::uint32_t>> targets(ranks,
                                                  std::vector<std::uint32_t>(2 * ranks * count));
  std::vector<std::vector<std::uint32_t>> seen(
      ranks, std::vector<std::uint32_t>(meetings * 2 * ranks * count));
  std::vector<std::vector<std::uint32_t>> sources;  // [meeting][rank], both parts
  qpn::test::emulator_memory memory;
  shared.add_regions(memory);
  for (int i = 0; i < meetings * of.ranks; ++i) {
    sources.emplace_back(2 * count);
    for (std::uint32_t& word : sources.back()) word = static_cast<std::uint32_t>(random());
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    memory.add_region("source " + std::to_string(i), sources[i].data(), sources[i].size() * 4,
                      region_use::data);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    memory.add_region("target " + std::to_string(rank), targets[rank].data(),
                      targets[rank].size() * 4, region_use::workspace);
    memory.add_region("seen " + std::to_string(rank), seen[rank].data(), seen[rank].size() * 4,
                      region_use::output);
  }
  std::vector<peer_gather_params> kernels(meetings);
  for (std::size_t meeting = 0; meeting < kernels.size(); ++meeting) {
    peer_gather_params& kernel = kernels[meeting];
    for (int rank = 0; rank < of.ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      peer_gather_params::rank_rows& entry = kernel.of[rank];
      for (std::size_t part = 0; part < 2; ++part) {
        entry.source[part] = sources[meeting * ranks + at].data() + part * count;
        bool const takes = of.to_all || rank == 0;
        entry.target[part] = takes ? targets[at].data() + part * ranks * count : nullptr;
      }
      entry.flags = shared.flags_of(rank);
    }
    kernel.parts = 2;
    kernel.ranks = of.ranks;
    kernel.grid_ranks = of.ranks;
    kernel.rows = of.rows;
    kernel.words = of.words;
    kernel.source_stride = of.words;
    kernel.target_stride = of.ranks * of.words;
    kernel.rank_stride = of.words;
    kernel.flag_rows = of.rows;
    kernel.guard = shared.guard();
  }
  peer_setting setting;
  setting.made = of.made;
  setting.ranks = of.ranks;
  setting.ready = shared.flags.data() + (1 + of.ranks) * of.rows;
  setting.ready_stride = shared.flag_count();
  setting.ready_count = of.ranks * of.rows;
  std::int64_t const row_words = of.ranks * of.words;
  outcome result;
  result.report =
      qpn::test::emulate(grid_of(kernels[0], seed, memory), [&](qpn::test::emulated_lane& lane) {
        peer_lane own(lane, setting);
        auto const rank = static_cast<std::size_t>(lane.block() % of.ranks);
        std::int64_t const row = lane.block() / of.ranks;
        for (std::size_t meeting = 0; meeting < kernels.size(); ++meeting) {
          run_program(own, kernels[meeting]);
          own.sync_block();
          // The work that follows on a rank that took the rows: it reads them.
          if (!of.to_all && rank != 0) continue;
          for (std::int64_t i = lane.thread(); i < 2 * row_words;
               i += peer_gather_params::threads) {
            std::int64_t const from =
                i / row_words * of.rows * row_words + row * row_words + i % row_words;
            std::int64_t const to =
                static_cast<std::int64_t>(meeting) * 2 * of.rows * row_words + from;
            own.store(seen[rank].data() + to, own.load_volatile(targets[rank].data() + from));
          }
          own.sync_block();
        }
      });
  result.failures = shared.failures;
  result.is_right = true;
  for (std::size_t rank = 0; rank < (of.to_all ? ranks : 1); ++rank) {
    std::vector<std::uint32_t> wanted;
    for (std::size_t meeting = 0; meeting < meetings; ++meeting) {
      for (std::size_t part = 0; part < 2; ++part) {
        for (std::int64_t row = 0; row < of.rows; ++row) {
          for (std::size_t from = 0; from < ranks; ++from) {
            auto const begin = sources[meeting * ranks + from].begin() +
                               static_cast<std::ptrdiff_t>(part * count) + row * of.words;
            wanted.insert(wanted.end(), begin, begin + of.words);
          }
        }
      }
    }
    result.is_right = result.is_right && seen[rank] == wanted;
  }
  return result;
}

TEST(peer_gather, rows_lie_side_by_side_in_rank_order_where_they_are_wanted) {
  for (gather_case const& of : {gather_case{2, 1, 7, false}, {3, 2, 1, true}, {2, 1, 1030, true}}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      outcome const got = run_gather(of, seed);
      EXPECT_TRUE(got.went_well()) << of.ranks << " ranks, " << of.rows << " rows, seed " << seed
                                   << ": " << got.report.text();
    }
  }
}

TEST(peer_gather, every_mistake_is_found) {
  for (peer_mistake made : {peer_mistake::no_release, peer_mistake::no_acquire,
                            peer_mistake::flag_too_high, peer_mistake::not_ready}) {
    for (bool to_all : {false, true}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        outcome const got = run_gather({3, 2, 5, to_all, made}, seed);
        EXPECT_FALSE(got.went_well())
            << "mistake " << static_cast<int>(made) << ", to all " << to_all << ", seed " << seed;
      }
    }
  }
}

TEST(peer_gather, a_rank_that_does_not_come_ends_the_wait_and_is_named) {
  outcome const got = run_gather({3, 1, 2, true, peer_mistake::flag_lost}, 1);
  EXPECT_FALSE(got.is_right);
  EXPECT_EQ(got.failures[0], 2U);
}

}  // namespace
}  // namespace qwen38::test

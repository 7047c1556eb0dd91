// SPDX-License-Identifier: Apache-2.0
// Ranks as threads with a device each: streams of one GPU (or of its emulation), and where there
// are enough, GPUs of their own.

#include "parallel/device_group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <qpn/candidates.hpp>
#include <random>

#include "ops/cuda/memory.hpp"
#include "test/ops/cuda/device_ranks.hpp"

namespace qwen38::test {
namespace {

using namespace std::chrono_literals;
using parallel::communicator;
using parallel::rank_team;

constexpr std::int64_t max_cols = ranks_on_devices::max_cols;

/// The parameter: whether all ranks share a GPU.
class device_group : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam() && test_gpu_count() < 2) GTEST_SKIP() << "needs several GPUs";
  }
  static std::vector<int> sizes(std::vector<int> wanted) {
    if (!GetParam()) std::erase_if(wanted, [](int size) { return size > test_gpu_count(); });
    return wanted;
  }
};

TEST_P(device_group, sums_run_in_rank_order_and_the_norm_has_the_bits_of_the_backends) {
  for (int size : sizes({2, 3, 4})) {
    ranks_on_devices ranks(size, GetParam());
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      std::int64_t const rows = seed == 1 ? 1 : seed == 2 ? 7 : 3;
      std::int64_t const cols = seed == 1 ? max_cols : seed == 2 ? 5 : 64;
      SCOPED_TRACE(std::to_string(size) + " ranks, seed " + std::to_string(seed));
      std::vector<std::vector<float>> terms;
      for (int rank = 0; rank < size; ++rank) {
        terms.push_back(
            random_floats(seed * 10 + static_cast<std::uint64_t>(rank), rows * cols, 1000.0F));
      }
      std::vector<float> const before = random_floats(seed, rows * cols);
      std::vector<float> const w = random_floats(seed + 5, cols);
      std::vector<float> wanted = before;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        float sum = terms[0][i];
        for (std::size_t rank = 1; rank < terms.size(); ++rank) sum += terms[rank][i];
        wanted[i] += sum;
      }
      bool const half = seed != 3;
      ranks.team.run([&](int rank) {
        ops::cuda::device& own = ranks.device(rank);
        auto const norm = ranks.backend(rank).make_constants(w);
        device_rows partial(own, qpn::dtype::f32, rows, cols, 3);
        device_rows x(own, qpn::dtype::f32, rows, cols, 5);
        auto const y_type = half ? qpn::dtype::f16 : qpn::dtype::f32;
        device_rows y(own, y_type, rows, cols, 1);
        device_rows y_wanted(own, y_type, rows, cols, 1);
        partial.write(terms[static_cast<std::size_t>(rank)]);
        x.write(before);
        ranks.team.end(rank)->sum_into(partial.view(), x.view(), {norm.get(), 1e-6F, y.view()});
        EXPECT_TRUE(same_bits(x.read(), wanted)) << "rank " << rank;
        ranks.backend(rank).rms_norm(x.view(), *norm, 1e-6F, y_wanted.view());
        if (half) {
          EXPECT_EQ(y.read<std::uint16_t>(), y_wanted.read<std::uint16_t>()) << "rank " << rank;
        } else {
          EXPECT_TRUE(same_bits(y.read(), y_wanted.read())) << "rank " << rank;
        }
        ranks.team.end(rank)->check();
      });
    }
  }
}

TEST_P(device_group, columns_and_candidates_come_together) {
  for (int size : sizes({2, 4})) {
    ranks_on_devices ranks(size, GetParam());
    SCOPED_TRACE(std::to_string(size) + " ranks");
    for (int round = 0; round < 3; ++round) {  // the same memory again
      std::int64_t const rows = 1 + round;
      constexpr std::int64_t cols = 70;
      int const candidates = round == 0 ? 1 : 5;
      auto const seed = static_cast<std::uint64_t>(1 + round);
      std::vector<std::vector<float>> shards;
      qpn::merge_candidates_args merged{rows, candidates, size, nullptr, nullptr, nullptr, nullptr};
      std::size_t const entries = static_cast<std::size_t>(rows * candidates);
      std::vector<std::int32_t> ids;
      std::vector<float> values;
      std::mt19937_64 random(seed);
      for (int rank = 0; rank < size; ++rank) {
        shards.push_back(random_floats(seed * 10 + static_cast<std::uint64_t>(rank), rows * cols));
        for (std::int64_t row = 0; row < rows; ++row) {
          float value = 10;
          for (int place = 0; place < candidates; ++place) {
            value -= static_cast<float>(random() % 3);  // ties, within a list by id
            ids.push_back(rank * 100 + place);
            values.push_back(value);
          }
        }
      }
      std::vector<std::int32_t> wanted_ids(entries);
      std::vector<float> wanted_values(entries);
      merged.ids = ids.data();
      merged.values = values.data();
      merged.merged_ids = wanted_ids.data();
      merged.merged_values = wanted_values.data();
      ASSERT_TRUE(qpn::merge_candidates(merged).ok());
      ranks.team.run([&](int rank) {
        auto const at = static_cast<std::size_t>(rank);
        ops::cuda::device& own = ranks.device(rank);
        communicator& end = *ranks.team.end(rank);
        device_rows shard(own, qpn::dtype::f32, rows, cols, 2);
        device_rows full(own, qpn::dtype::f32, rows, size * cols, 4);
        shard.write(shards[at]);
        end.gather_columns(shard.view(), rank == 0 ? full.view() : ops::tensor{});
        std::vector<float> const got = full.read();
        for (std::int64_t i = 0; rank == 0 && i < std::ssize(got); ++i) {
          std::int64_t const column = i % (size * cols);
          ASSERT_EQ(got[static_cast<std::size_t>(i)],
                    shards[static_cast<std::size_t>(column / cols)]
                          [static_cast<std::size_t>(i / (size * cols) * cols + column % cols)])
              << "element " << i;
        }
        auto own_ids = ops::cuda::make_array<std::int32_t>(own, std::ssize(wanted_ids), "ids");
        auto own_values = ops::cuda::make_array<float>(own, std::ssize(wanted_ids), "values");
        own.upload(own_ids.as(), ids.data() + at * entries, entries * 4);
        own.upload(own_values.as(), values.data() + at * entries, entries * 4);
        end.merge_candidates(
            {own_ids.as<std::int32_t>(), own_values.as<float>(), rows, candidates});
        std::vector<std::int32_t> got_ids(entries);
        std::vector<float> got_values(entries);
        own.download(got_ids.data(), {own_ids.as(), entries * 4}, entries * 4, 1);
        own.download(got_values.data(), {own_values.as(), entries * 4}, entries * 4, 1);
        EXPECT_EQ(got_ids, wanted_ids) << "rank " << rank;
        EXPECT_EQ(got_values, wanted_values) << "rank " << rank;
        end.check();
      });
    }
  }
}

TEST_P(device_group, the_best_of_all_ranks_is_the_largest_then_the_lowest_id) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // [rank][row]: a tie, nobody's, a value that is no number, and one rank's alone.
  std::vector<std::vector<ops::ranked_id>> const lists = {
      {{1.0F, 7}, {0.0F, -1}, {5.0F, 3}, {-2.0F, 1}},
      {{1.0F, 5}, {9.0F, -1}, {nan, 40}, {9.0F, -1}},
      {{0.5F, 1}, {0.0F, -1}, {6.0F, 70}, {0.0F, -1}},
      {{-0.0F, 0}, {0.0F, -1}, {-1.0F, 90}, {0.0F, -1}}};
  std::vector<std::int32_t> const wanted = {5, -1, 40, 1};
  for (int size : sizes({2, 4})) {
    ranks_on_devices ranks(size, GetParam());
    SCOPED_TRACE(std::to_string(size) + " ranks");
    ranks.team.run([&](int rank) {
      ops::cuda::device& own = ranks.device(rank);
      ops::token_list best;
      auto const memory = ranks.backend(rank).make_tokens(std::ssize(wanted), best);
      auto const& list = lists[static_cast<std::size_t>(rank)];
      for (std::size_t rows = 1; rows <= wanted.size(); ++rows) {  // the same memory again
        own.upload(best.data(), list.data(), list.size() * sizeof(ops::ranked_id));
        ranks.team.end(rank)->max_over_ranks(best.first(rows));
        std::vector<ops::ranked_id> got(wanted.size());
        ranks.backend(rank).read(best, got);
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].id, i < rows ? wanted[i] : list[i].id)
              << "rank " << rank << " row " << i;
        }
      }
      ranks.team.end(rank)->check();
    });
  }
}

TEST_P(device_group, many_rounds_come_to_their_end) {
  int const size = sizes({2, 4}).back();
  int const rounds = test_device_is_emulated() ? 250 : 1000;
  ranks_on_devices ranks(test_device_is_emulated() ? 2 : size, GetParam());
  ranks.team.run([&](int rank) {
    ops::cuda::device& own = ranks.device(rank);
    device_rows partial(own, qpn::dtype::f32, 2, 8);
    device_rows x(own, qpn::dtype::f32, 2, 8);
    partial.write(std::vector<float>(16, 1.0F));
    for (int round = 0; round < rounds; ++round) {
      std::int64_t const rows = 1 + round % 2;
      ranks.team.end(rank)->sum_into(partial.view().slice_rows(0, rows),
                                     x.view().slice_rows(0, rows));
    }
    auto const got = x.read();
    float const each = static_cast<float>(ranks.team.size());
    EXPECT_EQ(got[0], each * static_cast<float>(rounds)) << "rank " << rank;
    EXPECT_EQ(got[15], each * static_cast<float>(rounds / 2)) << "rank " << rank;
    ranks.team.end(rank)->check();
  });
}

TEST_P(device_group, a_rank_that_fails_at_any_call_releases_the_others_and_ends_the_group) {
  int const size = sizes({2, 3}).back();
  for (int last_round : {0, 1, 4}) {
    int const culprit = last_round % size;
    ranks_on_devices ranks(size, GetParam());
    std::string const what = failure_of(ranks.team, [&](int rank) {
      ops::cuda::device& own = ranks.device(rank);
      device_rows partial(own, qpn::dtype::f32, 1, 8);
      device_rows x(own, qpn::dtype::f32, 1, 8);
      for (int round = 0; round < 6; ++round) {
        if (rank == culprit && round == last_round) {
          throw error(error_kind::corrupt_data, "the culprit's own sentence");
        }
        ranks.team.end(rank)->sum_into(partial.view(), x.view());
        // The others must know at the latest when they have waited for their work.
        own.wait();
        ranks.team.end(rank)->check();
      }
    });
    EXPECT_EQ(what, "the culprit's own sentence") << "round " << last_round;
    EXPECT_EQ(failure_of(ranks.team, [](int) {}),
              "the ranks stopped together after one of them failed (the culprit's own sentence): "
              "the model must be loaded again");
  }
}

TEST_P(device_group, what_all_ranks_refuse_leaves_the_group_as_it_was) {
  int const size = sizes({2, 4}).back();
  ranks_on_devices ranks(size, GetParam());
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(
        failure_of(ranks.team, [](int) { throw error(error_kind::invalid_argument, "refused"); }),
        "refused");
    ranks.team.run([&](int rank) {
      device_rows partial(ranks.device(rank), qpn::dtype::f32, 1, 1);
      device_rows x(ranks.device(rank), qpn::dtype::f32, 1, 1);
      partial.write(std::vector<float>{static_cast<float>(rank + 1)});
      ranks.team.end(rank)->sum_into(partial.view(), x.view());
      EXPECT_EQ(x.read()[0], static_cast<float>(size * (size + 1) / 2)) << "rank " << rank;
    });
  }
}

TEST_P(device_group, calls_beyond_the_groups_limits_are_refused) {
  ranks_on_devices ranks(2, GetParam());
  EXPECT_EQ(failure_of(ranks.team,
                       [&](int rank) {
                         device_rows rows(ranks.device(rank), qpn::dtype::f32, 9, 4);
                         ranks.team.end(rank)->sum_into(rows.view(), rows.view());
                       }),
            "exchange between ranks: 9 rows, expected at most 8");
}

/// There is one emulated GPU.
std::vector<bool> placements() {
  return test_device_is_emulated() ? std::vector<bool>{true} : std::vector<bool>{true, false};
}
INSTANTIATE_TEST_SUITE_P(placement, device_group, ::testing::ValuesIn(placements()),
                         [](auto const& of) { return of.param ? "one_gpu" : "a_gpu_each"; });

TEST(device_group_on_one_gpu, calls_that_do_not_fit_together_fail_on_every_rank) {
  ranks_on_devices ranks(2, true);
  std::atomic<int> thrown = 0;
  EXPECT_NE(failure_of(ranks.team,
                       [&](int rank) {
                         device_rows rows(ranks.device(rank), qpn::dtype::f32, 2, 8);
                         auto const part = rows.view().slice_cols(0, rank == 0 ? 8 : 5);
                         try {
                           ranks.team.end(rank)->sum_into(part, part);
                         } catch (error const&) {
                           ++thrown;
                           throw;
                         }
                       })
                .find("expected the same on each"),
            std::string::npos);
  EXPECT_EQ(thrown, 2);
}

TEST(device_group_on_one_gpu, a_share_for_each_of_more_ranks_than_a_grid_takes_is_refused) {
  EXPECT_THROW(static_cast<void>(parallel::make_device_group(open_ranks(9, true), {1, 1})), error);
}

// A GPU that is lost without a word, as far as the others can see.
TEST(device_group_of_gpus, a_rank_that_never_comes_is_named_after_the_patience) {
  if (test_gpu_count() < 2) GTEST_SKIP() << "needs several GPUs";
  ranks_on_devices ranks(2, false, std::chrono::milliseconds(200));
  EXPECT_EQ(failure_of(ranks.team,
                       [&](int rank) {
                         if (rank == 1) return;
                         device_rows rows(ranks.device(rank), qpn::dtype::f32, 1, 8);
                         ranks.team.end(rank)->sum_into(rows.view(), rows.view());
                         ranks.device(rank).wait();
                         ranks.team.end(rank)->check();
                       }),
            "rank 0 waited 200 ms for rank 1 on the GPU and gave up");
}

}  // namespace
}  // namespace qwen38::test

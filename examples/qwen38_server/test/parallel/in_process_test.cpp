// SPDX-License-Identifier: Apache-2.0
#include "parallel/in_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <new>
#include <random>

#include "ops/cpu/cpu_backend.hpp"
#include "parallel/rank_team.hpp"

namespace qwen38::parallel {
namespace {

/// fp32 rows whose stride exceeds their columns.
struct rows_buffer {
  rows_buffer(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0)
      : values(static_cast<std::size_t>(rows * (cols + padding))),
        view{values.data(), qpn::dtype::f32, rows, cols, cols + padding} {}
  [[nodiscard]] float& at(std::int64_t r, std::int64_t c) {
    return values.at(static_cast<std::size_t>(r * view.stride + c));
  }

  std::vector<float> values;
  ops::tensor view;
};

std::vector<std::uint32_t> bits_of(std::vector<float> const& values) {
  std::vector<std::uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST(in_process, sums_run_in_rank_order_and_x_takes_up_the_sum) {
  std::vector<float> const terms = {0x1p24F, 1, -0x1p24F, 0.5F};
  float const before = 3;
  float const wanted = before + (((terms[0] + terms[1]) + terms[2]) + terms[3]);
  // No other order gives that, but for the first two, which commute.
  std::vector<std::size_t> order = {0, 1, 2, 3};
  while (std::ranges::next_permutation(order).found) {
    float sum = terms[order[0]];
    for (std::size_t i = 1; i < order.size(); ++i) sum += terms[order[i]];
    ASSERT_EQ(before + sum == wanted, order == (std::vector<std::size_t>{1, 0, 2, 3}));
  }
  ASSERT_NE((((before + terms[0]) + terms[1]) + terms[2]) + terms[3], wanted);

  rank_team team(make_in_process_group(4));
  std::vector<float> got(4);
  team.run([&](int rank) {
    rows_buffer partial(1, 1);
    rows_buffer x(1, 1);
    partial.at(0, 0) = terms[static_cast<std::size_t>(rank)];
    x.at(0, 0) = before;
    team.end(rank)->sum_into(partial.view, x.view);
    got[static_cast<std::size_t>(rank)] = x.at(0, 0);
  });
  EXPECT_EQ(got, std::vector<float>(4, wanted));
}

TEST(in_process, the_norm_after_a_sum_has_the_bits_of_the_backends) {
  rank_team team(make_in_process_group(2));
  team.run([&](int rank) {
    auto const backend = ops::cpu::make_backend(1);
    rows_buffer partial(2, 7, 1);
    rows_buffer x(2, 7, 2);
    rows_buffer y(2, 7, 3);
    rows_buffer wanted(2, 7, 3);
    std::mt19937 random(3);  // the same on both ranks
    std::normal_distribution<float> normal;
    std::vector<float> w(7);
    for (auto* const values : {&partial.values, &x.values, &w}) {
      for (float& one : *values) one = normal(random);
    }
    auto const constants = backend->make_constants(w);
    team.end(rank)->sum_into(partial.view, x.view, {constants.get(), 1e-6F, y.view});
    backend->rms_norm(x.view, *constants, 1e-6F, wanted.view);
    EXPECT_EQ(bits_of(y.values), bits_of(wanted.values)) << "rank " << rank;
  });
}

TEST(in_process, candidates_of_all_ranks_are_merged_on_each) {
  rank_team team(make_in_process_group(3));
  team.run([&](int rank) {
    // Rank 2 has one id that may be chosen; equal values go by id.
    std::vector<std::int32_t> ids = {10 * rank, 10 * rank + 1, 10 * rank + 2, 10 * rank + 3};
    std::vector<float> values = {5, 4, rank == 1 ? 7.0F : 3.0F, 1};
    if (rank == 2) ids[1] = ids[3] = -1;
    team.end(rank)->merge_candidates({ids.data(), values.data(), 2, 2});
    EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 10, 12, 2})) << "rank " << rank;
    EXPECT_EQ(values, (std::vector<float>{5, 5, 7, 3})) << "rank " << rank;
  });
}

TEST(in_process, many_rounds_of_all_shapes_give_the_same_bits_on_every_rank) {
  for (int size = 1; size <= 4; ++size) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("size " + std::to_string(size) + " seed " + std::to_string(seed));
      constexpr int rounds = 60;
      rank_team team(make_in_process_group(size));
      // Every rank makes all ranks' terms itself, to know what must come out.
      team.run([&](int rank) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> exponent(-20, 20);
        auto const value = [&] {
          float const magnitude = std::exp2(exponent(random));
          return random() % 2 == 0 ? magnitude : -magnitude;
        };
        communicator& end = *team.end(rank);
        EXPECT_EQ(end.rank(), rank);
        EXPECT_EQ(end.size(), size);
        std::int64_t const all_rows[] = {0, 1, 3, 96};
        std::int64_t const all_cols[] = {1, 7, 64};
        for (int round = 0; round < rounds; ++round) {
          std::int64_t const rows = all_rows[random() % 4];
          std::int64_t const cols = all_cols[random() % 3];
          std::vector<rows_buffer> terms;
          rows_buffer x(rows, cols, 5);
          for (int other = 0; other < size; ++other) {
            terms.emplace_back(rows, cols, 3);
            for (float& one : terms.back().values) one = value();
          }
          for (float& one : x.values) one = value();
          rows_buffer& own = terms[static_cast<std::size_t>(rank)];
          if (random() % 2 == 0) {
            std::vector<float> wanted = x.values;
            for (std::int64_t r = 0; r < rows; ++r) {
              for (std::int64_t c = 0; c < cols; ++c) {
                float sum = terms[0].at(r, c);
                for (std::size_t other = 1; other < terms.size(); ++other) {
                  sum += terms[other].at(r, c);
                }
                wanted[static_cast<std::size_t>(r * x.view.stride + c)] += sum;
              }
            }
            end.sum_into(own.view, x.view);
            EXPECT_EQ(bits_of(x.values), bits_of(wanted)) << "round " << round;
          } else {
            rows_buffer full(rows, cols * size, 2);
            end.gather_columns(own.view, rank == 0 ? full.view : ops::tensor{});
            for (std::int64_t r = 0; rank == 0 && r < rows; ++r) {
              for (std::int64_t c = 0; c < cols * size; ++c) {
                EXPECT_EQ(full.at(r, c), terms[static_cast<std::size_t>(c / cols)].at(r, c % cols))
                    << "round " << round;
              }
            }
          }
        }
      });
    }
  }
}

TEST(in_process, the_largest_value_wins_and_the_lowest_rank_among_equals) {
  rank_team team(make_in_process_group(3));
  std::vector<std::vector<ranked_id>> best = {
      {{1, 5}, {2, 6}, {-0.0F, 7}, {0, -1}, {0, -1}, {-9, 3}},
      {{3, 15}, {2, 16}, {0.0F, 17}, {-4, 18}, {0, -1}, {0, -1}},
      {{2, 25}, {2, 26}, {-1, 27}, {-5, 28}, {0, -1}, {-8, 29}}};
  team.run([&](int rank) { team.end(rank)->max_over_ranks(best[static_cast<std::size_t>(rank)]); });
  for (auto const& of_rank : best) {
    std::vector<std::int32_t> ids;
    for (ranked_id const& one : of_rank) ids.push_back(one.id);
    EXPECT_EQ(ids, (std::vector<std::int32_t>{15, 6, 7, 18, -1, 29}));
    EXPECT_EQ(of_rank[0].value, 3);
  }
}

std::string failure_of(rank_team& team, std::function<void(int)> const& task,
                       error_kind kind = error_kind::internal) {
  try {
    team.run(task);
  } catch (error const& failure) {
    EXPECT_EQ(failure.kind(), kind) << failure.what();
    return failure.what();
  }
  return "";
}

TEST(in_process, calls_that_do_not_fit_together_fail_on_every_rank) {
  for (bool other_shape : {true, false}) {
    rank_team team(make_in_process_group(3));
    std::atomic<int> thrown = 0;
    failure_of(team, [&](int rank) {
      rows_buffer partial(2, rank == 1 && other_shape ? 5 : 4);
      rows_buffer full(2, 12);
      try {
        if (rank == 1 && !other_shape) {
          team.end(rank)->gather_columns(partial.view, full.view);
        } else {
          team.end(rank)->sum_into(partial.view, full.view);
        }
      } catch (error const& failure) {
        ++thrown;
        EXPECT_NE(std::string(failure.what()).find("expected the same on each"), std::string::npos);
        throw;
      }
    });
    EXPECT_EQ(thrown, 3) << other_shape;
  }
}

TEST(rank_team, a_rank_that_fails_at_any_call_releases_the_others_and_ends_the_group) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int const size = 2 + static_cast<int>(random() % 3);
    int const culprit = static_cast<int>(random() % static_cast<std::uint32_t>(size));
    int const last_round = static_cast<int>(random() % 20);
    rank_team team(make_in_process_group(size));
    std::atomic<int> released = 0;
    std::string const what = failure_of(
        team,
        [&](int rank) {
          rows_buffer partial(3, 8);
          rows_buffer x(3, 8);
          std::vector<ranked_id> best(2);
          for (int round = 0; round < 40; ++round) {
            if (rank == culprit && round == last_round) {
              throw error(error_kind::corrupt_data, "the culprit's own sentence");
            }
            try {
              if (round % 3 == 2) {
                team.end(rank)->max_over_ranks(best);
              } else {
                team.end(rank)->sum_into(partial.view, x.view);
              }
            } catch (error const& failure) {
              ++released;
              EXPECT_EQ(failure.kind(), error_kind::internal);
              EXPECT_EQ(round, last_round);
              throw;
            }
          }
        },
        error_kind::corrupt_data);
    EXPECT_EQ(what, "the culprit's own sentence");
    EXPECT_EQ(released, size - 1);
    bool called = false;
    EXPECT_EQ(failure_of(team, [&](int) { called = true; }),
              "the ranks stopped together after one of them failed (the culprit's own sentence): "
              "the model must be loaded again");
    EXPECT_FALSE(called);
  }
}

TEST(rank_team, what_all_ranks_refuse_leaves_the_group_as_it_was) {
  rank_team team(make_in_process_group(4));
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(failure_of(
                  team, [](int) { throw error(error_kind::invalid_argument, "refused"); },
                  error_kind::invalid_argument),
              "refused");
    std::vector<float> sums(4);
    team.run([&](int rank) {
      rows_buffer partial(1, 1);
      rows_buffer x(1, 1);
      partial.at(0, 0) = static_cast<float>(rank + 1);
      team.end(rank)->sum_into(partial.view, x.view);
      sums[static_cast<std::size_t>(rank)] = x.at(0, 0);
    });
    EXPECT_EQ(sums, std::vector<float>(4, 10.0F));
  }
}

TEST(rank_team, one_rank_that_fails_alone_ends_the_group_even_if_nobody_waited) {
  rank_team team(make_in_process_group(2));
  EXPECT_EQ(failure_of(team,
                       [](int rank) {
                         if (rank == 1) throw std::bad_alloc();
                       }),
            std::bad_alloc().what());
  EXPECT_NE(failure_of(team, [](int) {}).find("must be loaded again"), std::string::npos);
}

TEST(rank_team, every_rank_has_a_thread_of_its_own) {
  rank_team team(make_in_process_group(3));
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  team.run([&](int rank) { first[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  team.run([&](int rank) { second[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  std::ranges::sort(first);
  EXPECT_EQ(std::ranges::adjacent_find(first), first.end());
  EXPECT_FALSE(std::ranges::binary_search(first, std::this_thread::get_id()));
}

}  // namespace
}  // namespace qwen38::parallel

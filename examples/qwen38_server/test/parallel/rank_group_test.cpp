// SPDX-License-Identifier: Apache-2.0
#include "model/rank_group.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "support/error.hpp"
#include "tiny_model.hpp"

namespace {

using namespace qwen38;
using namespace qwen38::test;

constexpr char const* tiny = "../model/golden/tiny";
constexpr char const* demo = "../../demo_model";
constexpr std::int32_t demo_valid_ids = 4077;

bool same_bits(std::span<float const> a, std::span<float const> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class Call>
std::string internal_error_of(Call&& call) {
  try {
    call();
  } catch (error const& problem) {
    EXPECT_EQ(problem.kind(), error_kind::internal) << problem.what();
    return problem.what();
  }
  return "";
}

TEST(rank_group, limits_are_those_of_the_whole_model) {
  auto const group = open_group(tiny, tiny_valid_ids, 2, 3);
  auto const whole = open_model(tiny, tiny_valid_ids, 3);
  auto const& a = group->get_limits();
  auto const& b = whole->get_limits();
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.valid_ids, b.valid_ids);
  EXPECT_EQ(a.max_lanes, 3);
  EXPECT_EQ(a.max_context, b.max_context);
  EXPECT_EQ(a.has_mtp, b.has_mtp);
}

TEST(rank_group, any_cut_into_passes_gives_the_same_bits) {
  auto const lm = open_group(tiny, tiny_valid_ids, 2);
  auto const ids = some_ids(70, 1);
  auto const whole = all_logits(*lm, 0, ids);
  ASSERT_EQ(whole.size(), ids.size() * static_cast<std::size_t>(lm->get_limits().vocab_size));
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {64})));
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {3, 4, 5, 21, 22, 63, 65})));
}

// Sums over ranks take 96 rows at a time, whose norm goes with them.
TEST(rank_group, a_wide_pass_gives_the_bits_of_narrow_ones) {
  auto const ids = some_ids(250, 61);
  std::vector<std::vector<float>> last_rows;
  for (std::int32_t pass : {64, 128, 256}) {
    auto const lm = open_group(tiny, tiny_valid_ids, 2, 1, 1, 512, 0, pass);
    EXPECT_EQ(lm->get_limits().prefill_chunk, pass);
    lm->begin(0, lane_pages(*lm, 0));
    for (std::size_t first = 0; first < ids.size(); first += static_cast<std::size_t>(pass)) {
      std::size_t const count = std::min(static_cast<std::size_t>(pass), ids.size() - first);
      bool const last = first + count == ids.size();
      auto const rows = static_cast<std::int64_t>(count);
      model::sequence_rows const part{0, static_cast<std::int64_t>(first),
                                      std::span(ids).subspan(first, count), false,
                                      last ? rows - 40 : rows};
      auto const logits = lm->forward({&part, 1});
      if (last) last_rows.emplace_back(logits.begin(), logits.end());
    }
  }
  ASSERT_EQ(
      last_rows[0].size(),
      40 * static_cast<std::size_t>(open_model(tiny, tiny_valid_ids)->get_limits().vocab_size));
  EXPECT_TRUE(same_bits(last_rows[0], last_rows[1]));
  EXPECT_TRUE(same_bits(last_rows[0], last_rows[2]));
}

TEST(rank_group, the_number_of_threads_changes_no_bit) {
  auto const ids = some_ids(40, 2);
  auto const one = all_logits(*open_group(tiny, tiny_valid_ids, 2, 1, 1), 0, ids);
  EXPECT_TRUE(same_bits(one, all_logits(*open_group(tiny, tiny_valid_ids, 2, 1, 3), 0, ids)));
}

TEST(rank_group, lanes_in_one_pass_do_not_disturb_each_other) {
  auto const lm = open_group(tiny, tiny_valid_ids, 2, 2);
  auto const a = some_ids(20, 3);
  auto const b = some_ids(31, 4);
  auto expected = all_logits(*lm, 1, b);
  auto const second = all_logits(*lm, 0, a);
  expected.insert(expected.end(), second.begin(), second.end());
  lm->begin(0, lane_pages(*lm, 0));
  lm->begin(1, lane_pages(*lm, 1));
  model::sequence_rows const batch[] = {{1, 0, b, false, 0}, {0, 0, a, false, 0}};
  EXPECT_TRUE(same_bits(lm->forward(batch), expected));
}

TEST(rank_group, rejected_rows_leave_no_trace) {
  auto const lm = open_group(tiny, tiny_valid_ids, 2);
  auto const ids = some_ids(40, 6);
  auto const wanted = all_logits(*lm, 0, ids);
  std::size_t const width = static_cast<std::size_t>(lm->get_limits().vocab_size);
  for (std::size_t kept : {1U, 5U, 16U}) {
    lm->begin(0, lane_pages(*lm, 0));
    auto guess = some_ids(16, 7);
    std::copy_n(ids.begin() + 20, kept, guess.begin());
    model::sequence_rows rows{0, 0, std::span(ids).first(20), false, 20};
    EXPECT_TRUE(lm->forward({&rows, 1}).empty());
    rows = {0, 20, guess, true, 0};
    EXPECT_TRUE(same_bits(lm->forward({&rows, 1}).first(kept * width),
                          std::span(wanted).subspan(20 * width, kept * width)));
    lm->keep(0, static_cast<std::int64_t>(kept));
    rows = {0, static_cast<std::int64_t>(20 + kept), std::span(ids).subspan(20 + kept), false, 0};
    EXPECT_TRUE(same_bits(lm->forward({&rows, 1}), std::span(wanted).subspan((20 + kept) * width)))
        << "kept " << kept;
  }
}

TEST(rank_group, drafts_are_valid_ids_wherever_the_last_one_lies) {
  auto const ids = some_ids(30, 11);
  // Of 512 ids rank 1 holds the upper 256: none, one or most of them valid.
  for (std::int32_t valid_ids : {1, 200, 256, 257, 500}) {
    auto const drafts = [&](model::causal_lm& lm) {
      all_logits(lm, 0, ids);
      std::vector<std::int32_t> found(3);
      model::draft_rows const first{0, 0, ids, true, true};
      lm.draft({&first, 1}, std::span(found).first(1));
      for (std::size_t i = 1; i < found.size(); ++i) {
        model::draft_rows const next{
            0, static_cast<std::int64_t>(ids.size() + i - 1), {&found[i - 1], 1}, false, true};
        lm.draft({&next, 1}, std::span(found).subspan(i, 1));
      }
      return found;
    };
    auto const got = drafts(*open_group(tiny, valid_ids, 2));
    EXPECT_EQ(got, drafts(*open_model(tiny, valid_ids))) << valid_ids;
    for (std::int32_t id : got) EXPECT_TRUE(id >= 0 && id < valid_ids) << id << " of " << valid_ids;
  }
}

TEST(rank_group, every_rank_carries_the_same_residual_stream) {
  for (int size : {2, 4}) {
    auto const lm = open_group(demo, demo_valid_ids, size);
    std::vector<std::map<std::int64_t, std::vector<float>>> layers(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      lm->rank(rank).set_tap([&layers, rank](std::int64_t layer, std::span<float const> rows) {
        layers[static_cast<std::size_t>(rank)][layer].assign(rows.begin(), rows.end());
      });
    }
    all_logits(*lm, 0, some_ids(40, 8));
    ASSERT_EQ(layers[0].size(), 9U);
    for (std::size_t rank = 1; rank < layers.size(); ++rank) {
      for (auto const& [layer, rows] : layers[0]) {
        EXPECT_TRUE(same_bits(rows, layers[rank][layer])) << "rank " << rank << " layer " << layer;
      }
    }
  }
}

TEST(rank_group, each_rank_holds_its_heads_share_of_cache_and_state) {
  for (auto const& [directory, valid_ids, size] : {std::tuple(tiny, tiny_valid_ids, 2),
                                                   {demo, demo_valid_ids, 2},
                                                   {demo, demo_valid_ids, 4}}) {
    auto const whole = open_model(directory, valid_ids, 3)->get_memory_use();
    auto const group = open_group(directory, valid_ids, size, 3);
    std::size_t const ranks = static_cast<std::size_t>(size);
    for (int rank = 0; rank < size; ++rank) {
      auto const own = group->rank(rank).get_memory_use();
      EXPECT_EQ(own.kv_cache * ranks, whole.kv_cache) << directory << " rank " << rank;
      EXPECT_EQ(own.gdn_state * ranks, whole.gdn_state) << directory << " rank " << rank;
      EXPECT_LT(own.weights, whole.weights) << directory << " rank " << rank;
    }
  }
}

TEST(rank_group, a_model_that_does_not_split_is_refused_with_one_sentence) {
  try {
    open_group(tiny, tiny_valid_ids, 4);
    FAIL() << "2 GDN key heads over 4 ranks";
  } catch (error const& problem) {
    EXPECT_EQ(problem.kind(), error_kind::invalid_argument);
    EXPECT_STREQ(problem.what(),
                 "2 GDN key heads do not split over 4 ranks: expected a number of ranks that "
                 "divides them");
  }
}

TEST(rank_group, what_every_rank_refuses_is_refused_as_by_the_whole_model_and_changes_nothing) {
  auto const group = open_group(tiny, tiny_valid_ids, 2);
  auto const whole = open_model(tiny, tiny_valid_ids);
  auto const ids = some_ids(30, 9);
  auto const before = all_logits(*group, 0, ids);
  auto const refused = [&](model::causal_lm& lm) {
    model::sequence_rows const rows{1, 0, std::span(ids).first(1), false, 0};
    return internal_error_of([&] { static_cast<void>(lm.forward({&rows, 1})); });
  };
  EXPECT_EQ(refused(*group), "model: no such lane");
  EXPECT_EQ(refused(*group), refused(*whole));
  std::int32_t next = 0;
  model::draft_rows const draft{0, 3, std::span(ids).first(1), true, true};
  EXPECT_NE(internal_error_of([&] { group->draft({&draft, 1}, {&next, 1}); }), "");
  EXPECT_TRUE(same_bits(before, all_logits(*group, 0, ids)));
}

TEST(rank_group, a_rank_that_fails_inside_a_pass_ends_the_group_with_its_own_sentence) {
  for (int culprit : {0, 1}) {
    auto const group = open_group(tiny, tiny_valid_ids, 2);
    auto const ids = some_ids(5, 10);
    group->rank(culprit).set_tap([](std::int64_t layer, std::span<float const>) {
      if (layer == 2) throw error(error_kind::internal, "layer 2 is lost");
    });
    EXPECT_EQ(internal_error_of([&] { all_logits(*group, 0, ids); }), "layer 2 is lost");
    group->rank(culprit).set_tap({});
    EXPECT_EQ(internal_error_of([&] { group->begin(0, lane_pages(*group, 0)); }),
              "the ranks stopped together after one of them failed (layer 2 is lost): the model "
              "must be loaded again");
  }
}

}  // namespace

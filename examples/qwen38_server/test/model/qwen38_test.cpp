// SPDX-License-Identifier: Apache-2.0
#include "model/qwen38.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/error.hpp"
#include "tiny_model.hpp"

namespace {

using namespace qwen38;
using namespace qwen38::test;

bool same_bits(std::span<float const> a, std::span<float const> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(qwen38_model, any_cut_into_passes_gives_the_same_bits) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(70, 1);
  auto const whole = all_logits(*lm, 0, ids);
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {1})));
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {64})));
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, {3, 4, 5, 21, 22, 63, 65})));
  std::vector<std::size_t> every;
  for (std::size_t i = 1; i < ids.size(); ++i) every.push_back(i);
  EXPECT_TRUE(same_bits(whole, all_logits(*lm, 0, ids, every)));
}

TEST(qwen38_model, the_number_of_threads_changes_no_bit) {
  auto const ids = some_ids(40, 2);
  auto const one = all_logits(*open_model(tiny_directory, tiny_valid_ids, 1, 1), 0, ids);
  EXPECT_TRUE(
      same_bits(one, all_logits(*open_model(tiny_directory, tiny_valid_ids, 1, 3), 0, ids)));
}

TEST(qwen38_model, lanes_in_one_pass_do_not_disturb_each_other) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids, 3);
  std::vector<std::vector<std::int32_t>> const ids = {some_ids(20, 3), some_ids(31, 4),
                                                      some_ids(9, 5)};
  std::vector<std::vector<float>> wanted;
  for (int lane = 0; lane < 3; ++lane)
    wanted.push_back(all_logits(*lm, lane, ids[static_cast<std::size_t>(lane)]));

  std::vector<model::sequence_rows> batch;
  for (int lane : {2, 0, 1}) {
    lm->reset(lane);
    batch.push_back({lane, 0, ids[static_cast<std::size_t>(lane)], false, 0});
  }
  auto const together = lm->forward(batch);
  std::vector<float> expected = wanted[2];
  expected.insert(expected.end(), wanted[0].begin(), wanted[0].end());
  expected.insert(expected.end(), wanted[1].begin(), wanted[1].end());
  EXPECT_TRUE(same_bits(together, expected));
}

TEST(qwen38_model, rejected_rows_leave_no_trace) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(40, 6);
  auto const wrong = some_ids(40, 7);
  auto const wanted = all_logits(*lm, 0, ids);
  std::size_t const width = static_cast<std::size_t>(lm->get_limits().vocab_size);
  for (std::size_t kept = 1; kept <= 16; ++kept) {
    lm->reset(0);
    model::sequence_rows rows{0, 0, std::span(ids).first(20), false, 20};
    EXPECT_TRUE(lm->forward({&rows, 1}).empty());
    // Sixteen tentative rows, of which the first `kept` are right.
    std::vector<std::int32_t> guess(ids.begin() + 20, ids.begin() + 36);
    std::copy(wrong.begin() + static_cast<std::ptrdiff_t>(kept), wrong.begin() + 16,
              guess.begin() + static_cast<std::ptrdiff_t>(kept));
    rows = {0, 20, guess, true, 0};
    auto const tentative = lm->forward({&rows, 1});
    EXPECT_TRUE(same_bits(tentative.first(kept * width),
                          std::span(wanted).subspan(20 * width, kept * width)));
    lm->keep(0, static_cast<std::int64_t>(kept));
    rows = {0, static_cast<std::int64_t>(20 + kept), std::span(ids).subspan(20 + kept), false, 0};
    EXPECT_TRUE(same_bits(lm->forward({&rows, 1}), std::span(wanted).subspan((20 + kept) * width)))
        << "kept " << kept;
  }
}

TEST(qwen38_model, drafts_depend_only_on_the_true_prefix) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(30, 8);
  // Hidden states of all rows, then MTP rows for all positions with the known next tokens.
  auto const chain = [&](std::vector<std::size_t> cuts, bool pollute) {
    lm->reset(0);
    cuts.push_back(ids.size() - 1);
    std::size_t first = 0;
    std::int32_t next = -1;
    for (std::size_t cut : cuts) {
      model::sequence_rows const rows{0, static_cast<std::int64_t>(first),
                                      std::span(ids).subspan(first, cut - first), false,
                                      static_cast<std::int64_t>(cut - first)};
      static_cast<void>(lm->forward({&rows, 1}));
      model::draft_rows draft{0, static_cast<std::int64_t>(first),
                              std::span(ids).subspan(first + 1, cut - first), true,
                              pollute || cut + 1 == ids.size()};
      lm->draft({&draft, 1}, {&next, 1});
      if (pollute && cut + 1 != ids.size()) {
        // Chained drafts from a guess: their K and V must be overwritten by the true rows that
        // follow.
        for (std::int64_t step = 0; step < 3; ++step) {
          std::int32_t const guess = next;
          draft = {0, static_cast<std::int64_t>(cut) + step, {&guess, 1}, false, true};
          lm->draft({&draft, 1}, {&next, 1});
        }
      }
      first = cut;
    }
    auto hidden = lm->draft_hidden(0);
    hidden.push_back(static_cast<float>(next));
    return hidden;
  };
  auto const whole = chain({}, false);
  EXPECT_GE(whole.back(), 0);
  EXPECT_LT(whole.back(), tiny_valid_ids);
  EXPECT_TRUE(same_bits(whole, chain({1, 2, 17}, false)));
  EXPECT_TRUE(same_bits(whole, chain({5, 9, 14, 28}, true)));
}

TEST(qwen38_model, a_reset_lane_forgets_everything) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(25, 9);
  auto const fresh = all_logits(*lm, 0, ids);
  all_logits(*lm, 0, some_ids(60, 10));
  EXPECT_TRUE(same_bits(fresh, all_logits(*lm, 0, ids)));
}

TEST(qwen38_model, a_broken_call_order_is_an_internal_error_not_a_wrong_answer) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids, 1, 1, 64);
  auto const ids = some_ids(97, 11);
  auto const run = [&](model::sequence_rows const& rows) { return lm->forward({&rows, 1}); };
  EXPECT_THROW(run({0, 0, ids, false, 0}), error);  // more rows than a pass holds
  EXPECT_THROW(run({0, 0, std::span(ids).first(17), true, 0}),
               error);  // more tentative rows than a record
  EXPECT_THROW(run({1, 0, std::span(ids).first(1), false, 0}), error);   // no such lane
  EXPECT_THROW(run({0, 60, std::span(ids).first(5), false, 0}), error);  // beyond the context
  std::int32_t next = 0;
  model::draft_rows const draft{0, 3, std::span(ids).first(1), true, true};
  EXPECT_THROW(lm->draft({&draft, 1}, {&next, 1}), error);  // no hidden states held
}

TEST(qwen38_model, options_out_of_range_are_refused_by_name) {
  auto const sentence = [](auto&& open) {
    try {
      open();
    } catch (error const& problem) {
      return std::string(problem.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(sentence([] { open_model(tiny_directory, 513); }).find("513 ids"), std::string::npos);
  EXPECT_NE(sentence([] {
              open_model(tiny_directory, tiny_valid_ids, 1, 1, 1 << 30);
            }).find("max_position_embeddings"),
            std::string::npos);
}

}  // namespace

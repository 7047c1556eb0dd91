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
    lm->begin(lane, lane_pages(*lm, lane));
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
    lm->begin(0, lane_pages(*lm, 0));
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
    lm->begin(0, lane_pages(*lm, 0));
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

// Lane 0 makes no drafts for a while, lane 1 one in each round, of which none is kept; then both
// draft.
TEST(qwen38_model, drafts_behind_rounds_without_any_are_those_of_a_lane_that_always_drafts) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids, 2);
  auto const ids = some_ids(20, 9);
  ops::token_choice const greedy;
  for (int gap : {1, 2, 7, 15}) {
    for (int lane : {0, 1}) {
      lm->begin(lane, lane_pages(*lm, lane));
      model::sequence_rows const rows{lane, 0, ids, false, std::ssize(ids)};
      static_cast<void>(lm->forward({&rows, 1}));
      std::vector<std::int32_t> const shifted(ids.begin() + 1, ids.end());
      model::draft_rows const behind{lane, 0, shifted, true, false};
      std::int32_t none = -1;
      lm->draft({&behind, 1}, {&none, 1});
    }
    std::array<std::vector<std::int32_t>, 2> settled = {{{7}, {7}}};
    std::array<model::round_result, 2> results;
    auto position = std::ssize(ids);
    for (int round = 0; round <= gap; ++round) {
      bool const last = round == gap;
      model::round_lane const batch[] = {{0, position, settled[0], last ? 3 : 0, &greedy},
                                         {1, position, settled[1], last ? 3 : 1, &greedy}};
      lm->round(batch, results);
      if (last) break;
      ASSERT_EQ(results[0].chosen[0].id, results[1].chosen[0].id);
      settled[0].push_back(results[0].chosen[0].id);
      settled[1] = {results[0].chosen[0].id};
      lm->keep(1, 1);
      ++position;
    }
    EXPECT_TRUE(std::ranges::equal(results[0].drafts, results[1].drafts)) << "gap " << gap;
    EXPECT_EQ(results[0].drafts.size(), 3U);
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(results[0].chosen[row].value, results[1].chosen[row].value) << "gap " << gap;
    }
  }
}

TEST(qwen38_model, more_settled_tokens_than_are_held_are_refused) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(5, 9);
  static_cast<void>(all_logits(*lm, 0, ids));
  ops::token_choice const greedy;
  model::round_result result;
  std::vector<std::int32_t> settled = {7};
  auto const round = [&](int drafts) {
    auto const position = std::ssize(ids) + std::ssize(settled) - 1;
    model::round_lane const one{0, position, settled, drafts, &greedy};
    lm->round({&one, 1}, {&result, 1});
    settled.push_back(7);
  };
  for (int i = 0; i < model::max_settled; ++i) round(0);
  EXPECT_THROW(round(1), error);
}

TEST(qwen38_model, a_lane_begun_anew_forgets_everything) {
  auto const lm = open_model(tiny_directory, tiny_valid_ids);
  auto const ids = some_ids(25, 9);
  auto const fresh = all_logits(*lm, 0, ids);
  all_logits(*lm, 0, some_ids(60, 10));
  EXPECT_TRUE(same_bits(fresh, all_logits(*lm, 0, ids)));
}

/// Prefills ids chunk by chunk as the engine does, MTP rows one behind; saves at `border`, if any.
/// Returns the logits of the rows from `from` on and the first draft after them.
std::vector<float> prefill(model::qwen38_model& lm, int lane, std::span<std::int32_t const> ids,
                           std::size_t from, std::size_t border = 0) {
  std::vector<float> out;
  for (std::size_t first = from; first < ids.size();) {
    std::size_t const end = std::min(first / 64 * 64 + 64, ids.size());
    bool const last = end == ids.size();
    model::sequence_rows const rows{lane, static_cast<std::int64_t>(first),
                                    ids.subspan(first, end - first), false, 0};
    auto const logits = lm.forward({&rows, 1});
    out.insert(out.end(), logits.begin(), logits.end());
    std::size_t const behind = first == 0 ? 0 : first - 1;
    std::vector<std::int32_t> shifted(ids.begin() + static_cast<std::ptrdiff_t>(behind) + 1,
                                      ids.begin() + static_cast<std::ptrdiff_t>(end));
    if (last) shifted.push_back(17);
    std::int32_t draft = -1;
    if (!shifted.empty()) {
      model::draft_rows const mtp{lane, static_cast<std::int64_t>(behind), shifted, true, last};
      lm.draft({&mtp, 1}, {&draft, 1});
    }
    if (last) out.push_back(static_cast<float>(draft));
    if (end == border) lm.save(lane, 1);
    first = end;
  }
  auto const hidden = lm.draft_hidden(lane);
  out.insert(out.end(), hidden.begin(), hidden.end());
  return out;
}

std::unique_ptr<model::qwen38_model> open_cached(int lanes, std::int32_t prefill_pass = 64) {
  return std::make_unique<model::qwen38_model>(
      std::make_shared<checkpoint::repository>(tiny_directory),
      checkpoint::load_model_config(tiny_directory), ops::cpu::make_backend(2),
      model::qwen38_options{tiny_valid_ids, lanes, 512, 40, 3, prefill_pass});
}

/// Prefills ids as the engine does, from a border of the model's passes; saves at `border`, if any.
/// Returns the logits of the last row, the first draft after it and its hidden state.
std::vector<float> prefill_by_passes(model::qwen38_model& lm, int lane,
                                     std::span<std::int32_t const> ids, std::size_t from,
                                     std::size_t border = 0) {
  auto const pass = static_cast<std::size_t>(lm.get_limits().prefill_chunk);
  std::vector<float> out;
  for (std::size_t first = from; first < ids.size(); first += pass) {
    std::size_t const end = std::min(first + pass, ids.size());
    bool const last = end == ids.size();
    auto const count = static_cast<std::int64_t>(end - first);
    model::sequence_rows const rows{lane, static_cast<std::int64_t>(first),
                                    ids.subspan(first, end - first), false,
                                    last ? count - 1 : count};
    auto const logits = lm.forward({&rows, 1});
    out.assign(logits.begin(), logits.end());
    std::size_t const behind = first == 0 ? 0 : first - 1;
    std::vector<std::int32_t> shifted(ids.begin() + static_cast<std::ptrdiff_t>(behind) + 1,
                                      ids.begin() + static_cast<std::ptrdiff_t>(end));
    if (last) shifted.push_back(17);
    std::int32_t draft = -1;
    model::draft_rows const mtp{lane, static_cast<std::int64_t>(behind), shifted, true, last};
    lm.draft({&mtp, 1}, {&draft, 1});
    if (last) out.push_back(static_cast<float>(draft));
    if (end == border) lm.save(lane, 1);
  }
  auto const hidden = lm.draft_hidden(lane);
  out.insert(out.end(), hidden.begin(), hidden.end());
  return out;
}

// On the CPU the rows of a pass change no bit, so passes of any width give the same; a sequence
// that is resumed at a border of its passes goes on to the same bits, drafts included.
TEST(qwen38_model, wide_passes_give_the_bits_of_narrow_ones_cold_and_resumed) {
  std::vector<std::int32_t> const own = {7, 3, 39, 0, 12, 30, 31};
  for (std::size_t length : {127, 128, 129, 256, 319, 385}) {
    auto const ids = some_ids(length, static_cast<std::uint32_t>(length));
    auto const narrow = open_cached(1);
    narrow->begin(0, own);
    auto const wanted = prefill_by_passes(*narrow, 0, ids, 0);
    for (std::int32_t pass : {128, 192}) {
      auto const lm = open_cached(2, pass);
      lm->begin(0, own);
      EXPECT_TRUE(same_bits(wanted, prefill_by_passes(*lm, 0, ids, 0)))
          << "length " << length << ", passes of " << pass;
      auto const step = static_cast<std::size_t>(pass);
      for (std::size_t border = step; border < length; border += step) {
        lm->begin(0, own);
        prefill_by_passes(*lm, 0, ids, 0, border);
        std::vector<std::int32_t> mixed = {20, 21, 22, 23, 24, 25, 26};
        lm->begin(1, mixed);
        prefill_by_passes(*lm, 1, some_ids(400, 99), 0);
        std::copy(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(border / 64),
                  mixed.begin());
        lm->resume(1, mixed, 1, static_cast<std::int64_t>(border));
        EXPECT_TRUE(same_bits(wanted, prefill_by_passes(*lm, 1, ids, border)))
            << "length " << length << ", passes of " << pass << ", border " << border;
      }
    }
  }
}

TEST(qwen38_model, wide_passes_keep_to_their_borders_and_limits) {
  auto const lm = open_cached(2, 192);
  std::vector<std::int32_t> const pages = {0, 1, 2, 3, 4, 5, 6, 7};
  auto const ids = some_ids(300, 71);
  auto const run = [&](std::int64_t position, std::size_t rows, std::int64_t logits_from) {
    model::sequence_rows const one{0, position,
                                   std::span(ids).subspan(static_cast<std::size_t>(position), rows),
                                   false, logits_from};
    return lm->forward({&one, 1});
  };
  EXPECT_EQ(lm->get_limits().prefill_chunk, 192);
  lm->begin(0, pages);
  EXPECT_THROW(run(0, 193, 193), error);  // more than a pass
  EXPECT_THROW(run(0, 192, 95), error);   // 97 rows with logits
  run(0, 64, 64);
  EXPECT_THROW(lm->save(0, 0), error);     // 64 is no border
  EXPECT_THROW(run(64, 129, 129), error);  // over the border
  EXPECT_EQ(run(64, 128, 32).size(), 96U * static_cast<std::size_t>(lm->get_limits().vocab_size));
  lm->save(0, 0);
  EXPECT_THROW(lm->resume(1, pages, 0, 128), error);
  lm->resume(1, pages, 0, 192);
  std::vector<model::sequence_rows> const two = {
      {0, 192, std::span(ids).subspan(192, 90), false, 90},
      {1, 192, std::span(ids).subspan(192, 7), false, 7}};
  EXPECT_THROW(lm->forward(two), error);  // 97 rows of two sequences

  for (std::int32_t pass : {0, 63, 100, -64}) {
    EXPECT_THROW(open_cached(1, pass), error) << pass;
  }
}

// A snapshot and the pages below it are the whole past: another lane goes on from there to the same
// bits, drafts included, at every border, with the rest of its pages spoiled by other sequences.
TEST(qwen38_model, a_resumed_sequence_goes_on_to_the_bit_with_its_drafts) {
  for (std::size_t length : {65, 66, 128, 129, 200}) {
    auto const ids = some_ids(length, static_cast<std::uint32_t>(20 + length));
    auto const lm = open_cached(2);
    std::vector<std::int32_t> const own = {7, 3, 39, 0, 12};
    lm->begin(0, own);
    auto const cold = prefill(*lm, 0, ids, 0);
    auto const width = static_cast<std::size_t>(lm->get_limits().vocab_size);
    for (std::size_t border = 64; border < length; border += 64) {
      lm->begin(0, own);
      EXPECT_TRUE(same_bits(cold, prefill(*lm, 0, ids, 0, border))) << "saving changed a bit";
      // The lane itself goes on and spoils what is its own, another one spoils further pages.
      std::vector<std::int32_t> mixed = {20, 21, 22, 23, 24};
      lm->begin(1, mixed);
      prefill(*lm, 1, some_ids(200, 99), 0);
      std::copy(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(border / 64), mixed.begin());
      for (int again = 0; again < 2; ++again) {
        lm->resume(1, mixed, 1, static_cast<std::int64_t>(border));
        auto const warm = prefill(*lm, 1, ids, border);
        EXPECT_TRUE(same_bits(std::span(cold).subspan(border * width), warm))
            << "length " << length << ", border " << border << ", time " << again;
      }
    }
  }
}

// Two sequences with one beginning, one of them in the pages of the other, in turns: neither sees
// that the other one is there, nor do their drafts.
TEST(qwen38_model, a_shared_page_is_only_read) {
  auto const lm = open_cached(2);
  auto const first = some_ids(200, 61);
  auto second = first;
  for (std::size_t i = 64; i < second.size(); ++i) second[i] = (second[i] + 7) % tiny_valid_ids;
  auto const width = static_cast<std::size_t>(lm->get_limits().vocab_size);
  std::vector<std::int32_t> const pages = {4, 5, 6, 7};
  std::vector<std::int32_t> const others = {4, 15, 16, 17};
  lm->begin(0, pages);
  auto const first_alone = prefill(*lm, 0, first, 0);
  lm->begin(0, pages);
  auto const second_alone = prefill(*lm, 0, second, 0);

  lm->begin(0, pages);
  prefill(*lm, 0, std::span(first).first(128), 0, 64);
  lm->resume(1, others, 1, 64);
  auto const second_beside = prefill(*lm, 1, second, 64);
  auto const first_beside = prefill(*lm, 0, first, 128);
  EXPECT_TRUE(same_bits(std::span(second_alone).subspan(64 * width), second_beside));
  EXPECT_TRUE(same_bits(std::span(first_alone).subspan(128 * width), first_beside));
}

// The hidden state that the MTP row across a chunk border pairs with is the one that a pass without
// a border has there.
TEST(qwen38_model, drafts_after_chunks_are_those_after_one_pass) {
  auto const lm = open_cached(1);
  std::vector<std::int32_t> const pages = {9, 8, 7};
  for (std::size_t length : {65, 66, 90}) {
    auto ids = some_ids(length, static_cast<std::uint32_t>(50 + length));
    lm->begin(0, pages);
    auto const chunked = prefill(*lm, 0, ids, 0);
    lm->begin(0, pages);
    model::sequence_rows const rows{0, 0, ids, false, 0};
    auto const logits = lm->forward({&rows, 1});
    std::vector<float> whole(logits.begin(), logits.end());
    std::vector<std::int32_t> shifted(ids.begin() + 1, ids.end());
    shifted.push_back(17);
    model::draft_rows const mtp{0, 0, shifted, true, true};
    std::int32_t draft = -1;
    lm->draft({&mtp, 1}, {&draft, 1});
    whole.push_back(static_cast<float>(draft));
    auto const hidden = lm->draft_hidden(0);
    whole.insert(whole.end(), hidden.begin(), hidden.end());
    EXPECT_TRUE(same_bits(whole, chunked)) << "length " << length;
  }
}

TEST(qwen38_model, where_pages_lie_and_what_they_held_changes_no_bit) {
  auto const ids = some_ids(200, 31);
  auto const lm = open_cached(1);
  lm->begin(0, std::vector<std::int32_t>{0, 1, 2, 3});
  auto const wanted = prefill(*lm, 0, ids, 0);
  for (std::uint32_t seed = 1; seed < 5; ++seed) {
    std::vector<std::int32_t> pages = {39, 4 * static_cast<std::int32_t>(seed), 1, 38};
    lm->begin(0, pages);
    prefill(*lm, 0, some_ids(250, 400 + seed), 0);
    std::swap(pages[0], pages[3]);
    lm->begin(0, pages);
    EXPECT_TRUE(same_bits(wanted, prefill(*lm, 0, ids, 0))) << "seed " << seed;
  }
}

TEST(qwen38_model, a_snapshot_out_of_order_is_an_internal_error) {
  auto const lm = open_cached(1);
  auto const ids = some_ids(70, 32);
  std::vector<std::int32_t> const pages = {5, 6};
  lm->begin(0, pages);
  EXPECT_THROW(lm->save(0, 0), error);  // nothing to save
  prefill(*lm, 0, ids, 0, 64);
  EXPECT_THROW(lm->save(0, 0), error);  // no chunk border
  EXPECT_THROW(lm->resume(0, pages, 3, 64), error);
  EXPECT_THROW(lm->resume(0, pages, -1, 64), error);
  EXPECT_THROW(lm->resume(0, pages, 1, 0), error);
  EXPECT_THROW(lm->resume(0, pages, 1, 63), error);
  EXPECT_THROW(lm->resume(1, pages, 1, 64), error);
  lm->resume(0, pages, 1, 64);
  model::sequence_rows const rows{0, 63, std::span(ids).subspan(63), false, 0};
  EXPECT_THROW(lm->forward({&rows, 1}), error);  // not where the sequence stands
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

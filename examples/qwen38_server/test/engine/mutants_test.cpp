// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

// The checks of speculation_test.cpp must notice a model, or an engine, that is wrong.
namespace qwen38::engine {
namespace {

std::vector<request> mixed_requests(int k) {
  std::vector<request> wanted;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    wanted.push_back(greedy_request(1 + 13 * seed, 60, k, seed));
    if (seed % 2 == 1) wanted.back().sampling.temperature = 1;
  }
  return wanted;
}

bool some_draft_fails(std::int64_t position, int depth) {
  return (position + depth) % 3 != 0;
}

/// How many of the requests get another answer at this depth than with k = 0, one after the other.
int changed_answers(test::toy_options options, int k) {
  options.limits.max_lanes = 1;
  options.agrees = some_draft_fails;
  auto const plain = run_all(options, mixed_requests(0));
  auto const speculative = run_all(options, mixed_requests(k));
  int changed = 0;
  for (std::size_t i = 0; i < plain.size(); ++i)
    changed += plain[i]->get() == speculative[i]->get() ? 0 : 1;
  return changed;
}

TEST(engine_mutants, a_sound_model_changes_no_answer) {
  for (int k = 1; k <= max_draft_tokens; ++k) EXPECT_EQ(changed_answers({}, k), 0) << "k " << k;
}

TEST(engine_mutants, a_sum_that_depends_on_the_rows_of_a_pass_is_noticed) {
  test::toy_options options;
  options.fault = test::toy_fault::sum_depends_on_rows;
  for (int k = 1; k <= max_draft_tokens; ++k)
    EXPECT_GT(changed_answers(options, k), 0) << "k " << k;
}

TEST(engine_mutants, a_state_that_keeps_rejected_rows_is_noticed) {
  test::toy_options options;
  options.fault = test::toy_fault::state_keeps_rejected;
  for (int k = 1; k <= max_draft_tokens; ++k)
    EXPECT_GT(changed_answers(options, k), 0) << "k " << k;
}

TEST(engine_mutants, a_begin_that_keeps_the_state_is_noticed) {
  test::toy_options options;
  options.limits.max_lanes = 1;
  options.fault = test::toy_fault::begin_keeps_state;
  auto const sinks = run_all(options, mixed_requests(3));
  EXPECT_EQ(sinks[0]->get(), straight_answer(options, mixed_requests(3)[0]));
  for (std::size_t i = 1; i < sinks.size(); ++i) {
    EXPECT_NE(sinks[i]->get(), straight_answer(options, mixed_requests(3)[i])) << "request " << i;
  }
}

// Hidden states of the position before cost acceptance and never the text: only the counts tell.
TEST(engine_mutants, drafts_from_the_row_before_cost_acceptance_but_no_text) {
  test::toy_options options;
  request const wanted = greedy_request(65, 101, 7);
  auto const sound = run_all(options, {wanted});
  options.fault = test::toy_fault::draft_one_row_early;
  auto const shifted = run_all(options, {wanted});
  EXPECT_EQ(shifted[0]->get(), sound[0]->get());
  EXPECT_GT(sound[0]->outcome->speculation.tau(), 7.0);
  EXPECT_LT(shifted[0]->outcome->speculation.tau(), 4.0);
}

test::toy_options cached_toy() {
  test::toy_options options;
  options.agrees = some_draft_fails;
  options.limits.snapshots = 4;
  return options;
}

TEST(engine_mutants, a_snapshot_of_the_state_before_the_last_token_is_noticed) {
  request const wanted = greedy_request(200, 60, 3);
  for (auto fault : {test::toy_fault::none, test::toy_fault::snapshot_is_early}) {
    test::toy_options options = cached_toy();
    options.fault = fault;
    test::toy_model model(options);
    EXPECT_EQ(run_all(model, {wanted})[0]->get(), straight_answer(options, wanted));
    engine driven(model, byte_tokenizer());
    std::vector<answer> got;
    for (int turn = 0; turn < 2; ++turn) {
      auto const sink = std::make_shared<recorder>();
      driven.submit(wanted, sink);
      run_to_end(driven);
      got.push_back(sink->get());
    }
    EXPECT_EQ(got[1] == got[0], fault == test::toy_fault::none);
  }
}

/// Stands between engine and toy, and passes calls on with one mistake.
class wrong_caller final : public model::causal_lm {
 public:
  enum class mistake {
    none,
    draft_position,  // one too far
    draft_ids,       // not shifted by one
    no_refresh,      // MTP rows of the prompt left out
    no_keep,
    keep_one_more,
    no_begin,
    verify_is_final,  // rows that may be rejected are passed as final
    no_save,
    save_elsewhere,    // to the place beside
    resume_elsewhere,  // from the place beside
    resume_cold,       // as if nothing were there
    wrong_pages,       // the first two the other way round
    too_few_pages,
    mtp_one_ahead,  // the last row of a chunk is written at once, with a wrong next token
  };
  wrong_caller(test::toy_options const& options, mistake kind) : inner_(options), kind_(kind) {}

  [[nodiscard]] limits const& get_limits() const noexcept override { return inner_.get_limits(); }
  void begin(int lane, std::span<std::int32_t const> pages) override {
    if (kind_ == mistake::no_begin) return;
    bool const fewer = kind_ == mistake::too_few_pages;
    inner_.begin(lane, pages.first(pages.size() - (fewer ? 1 : 0)));
  }
  void save(int lane, std::int32_t snapshot) override {
    if (kind_ == mistake::no_save) return;
    inner_.save(lane, kind_ == mistake::save_elsewhere ? snapshot ^ 1 : snapshot);
  }
  void resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
              std::int64_t position) override {
    std::vector<std::int32_t> changed(pages.begin(), pages.end());
    if (kind_ == mistake::wrong_pages) std::swap(changed[0], changed[1]);
    if (kind_ == mistake::too_few_pages) changed.pop_back();
    if (kind_ == mistake::resume_cold) {
      inner_.begin(lane, changed);
    } else {
      inner_.resume(lane, changed, kind_ == mistake::resume_elsewhere ? snapshot ^ 1 : snapshot,
                    position);
    }
  }
  std::span<float const> forward(std::span<model::sequence_rows const> batch) override {
    std::vector<model::sequence_rows> changed(batch.begin(), batch.end());
    if (kind_ == mistake::verify_is_final) {
      for (auto& rows : changed) rows.tentative = false;
    }
    wide_ = static_cast<std::int64_t>(batch[0].ids.size());
    return inner_.forward(changed);
  }
  void round(std::span<model::round_lane const> batch,
             std::span<model::round_result> results) override {
    stepwise_.run(*this, batch, results);
  }
  void keep(int lane, std::int64_t rows) override {
    if (kind_ == mistake::no_keep) return;
    inner_.keep(lane, kind_ == mistake::keep_one_more ? std::min(rows + 1, wide_) : rows);
  }
  void draft(std::span<model::draft_rows const> batch, std::span<std::int32_t> next_ids) override {
    std::vector<model::draft_rows> changed(batch.begin(), batch.end());
    for (auto& rows : changed) {
      if (kind_ == mistake::draft_position) ++rows.position;
      if (kind_ == mistake::draft_ids) rows.ids = wrong_;
      if (kind_ == mistake::no_refresh && !rows.want_draft) return;
      if (kind_ == mistake::mtp_one_ahead && !rows.want_draft) {
        longer_.assign(rows.ids.begin(), rows.ids.end());
        longer_.push_back('!');
        rows.ids = longer_;
      }
    }
    inner_.draft(changed, next_ids);
  }

 private:
  test::toy_model inner_;
  test::stepwise_round stepwise_;
  mistake kind_;
  std::int64_t wide_ = 0;
  std::vector<std::int32_t> wrong_ = {'!'};
  std::vector<std::int32_t> longer_;
};

/// Of a prompt that comes for the second time.
answer answer_through(wrong_caller::mistake kind) {
  wrong_caller model(cached_toy(), kind);
  engine driven(model, byte_tokenizer());
  answer got;
  for (int turn = 0; turn < 2; ++turn) {
    auto const sink = std::make_shared<recorder>();
    driven.submit(greedy_request(150, 60, 5), sink);
    run_to_end(driven);
    got = sink->get();
  }
  return got;
}

TEST(engine_mutants, the_toy_refuses_each_broken_call_order) {
  using mistake = wrong_caller::mistake;
  EXPECT_EQ(answer_through(mistake::none).finish, finish_reason::length);
  for (mistake kind :
       {mistake::draft_position, mistake::draft_ids, mistake::no_refresh, mistake::no_keep,
        mistake::keep_one_more, mistake::no_begin, mistake::verify_is_final, mistake::no_save,
        mistake::save_elsewhere, mistake::resume_elsewhere, mistake::resume_cold,
        mistake::wrong_pages, mistake::too_few_pages, mistake::mtp_one_ahead}) {
    EXPECT_EQ(answer_through(kind).finish, finish_reason::failed)
        << "mistake " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace qwen38::engine

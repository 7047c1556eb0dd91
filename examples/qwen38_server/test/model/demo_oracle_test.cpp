// SPDX-License-Identifier: Apache-2.0
// The trained demo checkpoint against the oracle: prefill logits, greedy ids and chained drafts, on
// prompts of held-out documents (make_goldens.py says how they were computed).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden.hpp"
#include "tiny_model.hpp"

namespace {

using namespace qwen38;
using namespace qwen38::test;

constexpr char const* demo_directory = "../../demo_model";
constexpr std::size_t vocab_size = 4096;
constexpr std::size_t compared_rows = 4;

/// The parameter is the number of ranks.
class demo_oracle : public ::testing::TestWithParam<int> {
 protected:
  golden const wanted{"golden/demo"};
  std::int32_t const valid_ids = 4077;
  std::unique_ptr<model::causal_lm> lm = open();

  [[nodiscard]] std::unique_ptr<model::causal_lm> open() const {
    if (GetParam() == 1) return open_model(demo_directory, valid_ids, 1, 2, 1024);
    return open_group(demo_directory, valid_ids, GetParam(), 1, 1, 1024);
  }

  /// Feeds ids from position `first`, in passes of at most 64 rows; logits of the last row.
  std::vector<float> feed(std::span<std::int32_t const> ids, std::size_t first,
                          std::size_t logit_rows = 1) {
    std::vector<float> logits;
    for (std::size_t at = 0; at < ids.size();) {
      std::size_t const count = std::min<std::size_t>(64, ids.size() - at);
      bool const last = at + count == ids.size();
      std::size_t const from = last ? count - std::min(count, logit_rows) : count;
      model::sequence_rows const rows{0, static_cast<std::int64_t>(first + at),
                                      ids.subspan(at, count), false,
                                      static_cast<std::int64_t>(from)};
      auto const part = lm->forward({&rows, 1});
      logits.assign(part.begin(), part.end());
      at += count;
    }
    return logits;
  }

  [[nodiscard]] std::int32_t best(std::span<float const> logits) const {
    auto const valid = logits.first(static_cast<std::size_t>(valid_ids));
    return static_cast<std::int32_t>(std::ranges::max_element(valid) - valid.begin());
  }
};

TEST_P(demo_oracle, logits_agree_at_the_end_of_each_prompt) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    lm->begin(0, lane_pages(*lm, 0));
    auto const got = feed(prompt.ids, 0, compared_rows);
    auto const& expected = wanted.array(prompt.name + ".logits.last4");
    ASSERT_EQ(got.size(), expected.size()) << prompt.name;
    for (std::size_t row = 0; row < compared_rows; ++row) {
      double difference = 0;
      double size = 0;
      for (std::size_t i = row * vocab_size; i < (row + 1) * vocab_size; ++i) {
        difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
        size += std::pow(static_cast<double>(expected[i]), 2);
      }
      EXPECT_LT(std::sqrt(difference / size), 2e-3) << prompt.name << " row " << row;
    }
  }
}

TEST_P(demo_oracle, greedy_ids_agree_token_by_token) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    auto const generated = prompt.fields.at("generated").get<std::vector<std::int32_t>>();
    // The manifest gives the smallest lead of a winner over the second; all stand clear of
    // rounding.
    ASSERT_GT(prompt.fields.at("smallest_margin").get<double>(), 0.02) << prompt.name;
    lm->begin(0, lane_pages(*lm, 0));
    auto logits = feed(prompt.ids, 0);
    for (std::size_t i = 0; i < generated.size(); ++i) {
      ASSERT_EQ(best(logits), generated[i]) << prompt.name << " token " << i;
      logits = feed(std::span(generated).subspan(i, 1), prompt.ids.size() + i);
    }
  }
}

TEST_P(demo_oracle, chained_drafts_agree) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    auto const drafts = prompt.fields.at("drafts").get<std::vector<std::int32_t>>();
    auto const next_id = prompt.fields.at("next_id").get<std::int32_t>();
    lm->begin(0, lane_pages(*lm, 0));
    std::int32_t draft = -1;
    for (std::size_t at = 0; at < prompt.ids.size(); at += 64) {
      std::size_t const count = std::min<std::size_t>(64, prompt.ids.size() - at);
      feed(std::span(prompt.ids).subspan(at, count), at);
      std::vector<std::int32_t> shifted(
          prompt.ids.begin() + static_cast<std::ptrdiff_t>(at) + 1,
          prompt.ids.begin() + static_cast<std::ptrdiff_t>(at + count));
      shifted.push_back(at + count < prompt.ids.size() ? prompt.ids[at + count] : next_id);
      model::draft_rows const rows{0, static_cast<std::int64_t>(at), shifted, true,
                                   at + count == prompt.ids.size()};
      lm->draft({&rows, 1}, {&draft, 1});
    }
    for (std::size_t depth = 0; depth < drafts.size(); ++depth) {
      EXPECT_EQ(draft, drafts[depth]) << prompt.name << " depth " << depth + 1;
      std::int32_t const last = drafts[depth];
      model::draft_rows const rows{
          0, static_cast<std::int64_t>(prompt.ids.size() + depth), {&last, 1}, false, true};
      lm->draft({&rows, 1}, {&draft, 1});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ranks, demo_oracle, ::testing::Values(1, 2, 4));

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// The model against transformers' Qwen3_5ForCausalLM in fp32 (and an MTP layer built from its
// parts), on the tiny checkpoint's dequantised values: see make_goldens.py.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "golden.hpp"
#include "tiny_model.hpp"

namespace {

using namespace qwen38;
using namespace qwen38::test;

constexpr double tolerance = 2e-3;  // relative, per row

/// Largest of the rows' relative errors ||got - wanted|| / ||wanted||.
double worst_row(std::span<float const> got, std::span<float const> wanted, std::size_t columns) {
  EXPECT_EQ(got.size(), wanted.size());
  double worst = 0;
  for (std::size_t row = 0; row < wanted.size(); row += columns) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = row; i < row + columns; ++i) {
      difference += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
      size += std::pow(static_cast<double>(wanted[i]), 2);
    }
    worst = std::max(worst, std::sqrt(difference / size));
  }
  return worst;
}

/// The lowest index of the largest valid logit, or -1 where the lead is too small to demand it.
std::int32_t clear_winner(std::span<float const> logits) {
  auto const valid = logits.first(tiny_valid_ids);
  auto const best = std::ranges::max_element(valid);
  float second = -INFINITY;
  for (auto it = valid.begin(); it != valid.end(); ++it) {
    if (it != best) second = std::max(second, *it);
  }
  return *best - second > 0.02F ? static_cast<std::int32_t>(best - valid.begin()) : -1;
}

class oracle : public ::testing::Test {
 protected:
  golden const wanted{tiny_directory};
  std::unique_ptr<model::qwen38_model> lm = open_model(tiny_directory, tiny_valid_ids);
};

TEST_F(oracle, every_layer_and_the_logits_agree_whole_and_token_by_token) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    std::vector<std::size_t> steps;
    for (std::size_t i = 1; i < prompt.ids.size(); ++i) steps.push_back(i);
    for (bool whole : {true, false}) {
      std::map<std::int64_t, std::vector<float>> layers;
      lm->set_tap([&](std::int64_t layer, std::span<float const> rows) {
        layers[layer].insert(layers[layer].end(), rows.begin(), rows.end());
      });
      auto const logits =
          all_logits(*lm, 0, prompt.ids, whole ? std::vector<std::size_t>{} : steps);
      lm->set_tap({});
      for (std::int64_t layer = 0; layer < 4; ++layer) {
        auto const& rows = wanted.array(prompt.name + ".hidden." + std::to_string(layer));
        double const error = worst_row(layers[layer], rows, 64);
        EXPECT_LT(error, tolerance) << prompt.name << " layer " << layer;
        RecordProperty(prompt.name + "_layer_" + std::to_string(layer), std::to_string(error));
      }
      EXPECT_LT(worst_row(layers[4], wanted.array(prompt.name + ".final"), 64), tolerance)
          << prompt.name;
      double const error = worst_row(logits, wanted.array(prompt.name + ".logits"), 512);
      EXPECT_LT(error, tolerance) << prompt.name;
      RecordProperty(prompt.name + "_logits", std::to_string(error));
    }
  }
}

TEST_F(oracle, the_mtp_layer_agrees_at_every_position) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    all_logits(*lm, 0, prompt.ids);
    std::vector<std::int32_t> next(prompt.ids.begin() + 1, prompt.ids.end());
    next.push_back(prompt.fields.at("next_id").get<std::int32_t>());
    std::vector<float> hidden;
    int demanded = 0;
    for (std::size_t p = 0; p < next.size(); ++p) {
      model::draft_rows const rows{0, static_cast<std::int64_t>(p), {&next[p], 1}, true, true};
      std::int32_t draft = -1;
      lm->draft({&rows, 1}, {&draft, 1});
      auto const row = lm->draft_hidden(0);
      hidden.insert(hidden.end(), row.begin(), row.end());
      auto const logits =
          std::span(wanted.array(prompt.name + ".mtp.logits")).subspan(p * 512, 512);
      if (std::int32_t const winner = clear_winner(logits); winner >= 0) {
        ++demanded;
        EXPECT_EQ(draft, winner) << prompt.name << " position " << p;
      }
    }
    EXPECT_GT(demanded, static_cast<int>(next.size() / 2));
    EXPECT_LT(worst_row(hidden, wanted.array(prompt.name + ".mtp.hidden"), 64), tolerance)
        << prompt.name;
  }
}

TEST_F(oracle, chained_drafts_agree) {
  for (golden::prompt const& prompt : wanted.prompts()) {
    all_logits(*lm, 0, prompt.ids);
    std::vector<std::int32_t> next(prompt.ids.begin() + 1, prompt.ids.end());
    next.push_back(prompt.fields.at("next_id").get<std::int32_t>());
    auto const drafts = prompt.fields.at("drafts").get<std::vector<std::int32_t>>();
    std::int32_t draft = -1;
    model::draft_rows rows{0, 0, next, true, true};
    lm->draft({&rows, 1}, {&draft, 1});
    EXPECT_EQ(draft, drafts[0]) << prompt.name;
    for (std::size_t depth = 1; depth < drafts.size(); ++depth) {
      std::int32_t const last = drafts[depth - 1];
      rows = {0, static_cast<std::int64_t>(prompt.ids.size() + depth - 1), {&last, 1}, false, true};
      lm->draft({&rows, 1}, {&draft, 1});
      EXPECT_EQ(draft, drafts[depth]) << prompt.name << " depth " << depth + 1;
    }
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "test/engine/stepwise_round.hpp"
#include "test/model/tiny_model.hpp"

namespace qwen38::test {

/// Lanes that decode greedily, round by round.
class round_player {
 public:
  struct lane {
    std::int64_t position = 0;
    std::vector<std::int32_t> settled;
    std::vector<std::int32_t> text;  ///< the prompt's ids, then the tokens of all rounds
    std::vector<std::int32_t> seen;  ///< drafts and tokens of all rounds
  };

  explicit round_player(model::causal_lm& lm) : lm_(lm) {}
  virtual ~round_player() = default;

  void prefill(int index, std::vector<std::int32_t> const& ids) {
    auto const logits = all_logits(lm_, index, ids);
    std::vector<std::int32_t> const shifted(ids.begin() + 1, ids.end());
    model::draft_rows const rows{index, 0, shifted, true, false};
    std::int32_t none = -1;
    lm_.draft({&rows, 1}, {&none, 1});
    std::int32_t const first = best(std::span(logits).last(width()));
    lanes[index] = {std::ssize(ids), {first}, ids, {}};
    lanes[index].text.push_back(first);
  }
  /// A round of lanes with their drafts.
  void play(std::map<int, int> const& depths) {
    std::vector<model::round_lane> batch;
    for (auto const& [index, drafts] : depths) {
      lane const& one = lanes[index];
      batch.push_back({index, one.position, one.settled, drafts, choice_});
    }
    std::vector<model::round_result> results(batch.size());
    run(batch, results);
    for (std::size_t i = 0; i < batch.size(); ++i) take(lanes[batch[i].lane], batch[i], results[i]);
  }

  std::map<int, lane> lanes;

 protected:
  virtual void run(std::span<model::round_lane const> batch,
                   std::span<model::round_result> results) {
    lm_.round(batch, results);
  }
  [[nodiscard]] std::size_t width() const {
    return static_cast<std::size_t>(lm_.get_limits().vocab_size);
  }
  [[nodiscard]] std::int32_t best(std::span<float const> row) const {
    auto const valid = row.first(static_cast<std::size_t>(lm_.get_limits().valid_ids));
    return static_cast<std::int32_t>(std::ranges::max_element(valid) - valid.begin());
  }
  void take(lane& one, model::round_lane const& was, model::round_result const& got) {
    EXPECT_EQ(std::ssize(got.drafts), was.drafts);
    one.settled.clear();
    do {
      std::size_t const row = one.settled.size();
      one.settled.push_back(got.chosen.empty() ? best(got.logits.subspan(row * width(), width()))
                                               : got.chosen[row].id);
    } while (one.settled.size() <= got.drafts.size() &&
             one.settled.back() == got.drafts[one.settled.size() - 1]);
    one.text.insert(one.text.end(), one.settled.begin(), one.settled.end());
    one.seen.insert(one.seen.end(), got.drafts.begin(), got.drafts.end());
    one.seen.insert(one.seen.end(), one.settled.begin(), one.settled.end());
    one.position += std::ssize(one.settled);
    if (was.drafts > 0) lm_.keep(was.lane, std::ssize(one.settled));
  }

  model::causal_lm& lm_;
  ops::token_choice const greedily_ = {};
  ops::token_choice const* choice_ = &greedily_;
};

class stepwise_player final : public round_player {
 public:
  using round_player::round_player;

 private:
  void run(std::span<model::round_lane const> batch,
           std::span<model::round_result> results) override {
    steps_.run(lm_, batch, results);
  }
  stepwise_round steps_;
};

}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "model/causal_lm.hpp"

namespace qwen38::test {

/// A round by its definition: draft() and forward() one after the other, each waiting for the one
/// before, and logits for the caller to choose from.
class stepwise_round {
 public:
  void run(model::causal_lm& lm, std::span<model::round_lane const> batch,
           std::span<model::round_result> results) {
    rows_.assign(batch.size(), {});
    int deepest = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      rows_[i].assign(1, batch[i].settled.back());
      deepest = std::max(deepest, batch[i].drafts);
    }
    for (int depth = 0; depth < deepest; ++depth) draft(lm, batch, depth);
    std::vector<model::sequence_rows> target;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      target.push_back({batch[i].lane, batch[i].position, rows_[i], batch[i].drafts > 0, 0});
    }
    std::span<float const> logits = lm.forward(target);
    auto const width = static_cast<std::size_t>(lm.get_limits().vocab_size);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      results[i] = {std::span(rows_[i]).subspan(1), {}, logits.first(rows_[i].size() * width)};
      logits = logits.subspan(rows_[i].size() * width);
    }
  }

 private:
  void draft(model::causal_lm& lm, std::span<model::round_lane const> batch, int depth) {
    std::vector<model::draft_rows> drafting;
    std::vector<std::size_t> whose;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      model::round_lane const& one = batch[i];
      if (one.drafts <= depth) continue;
      if (std::ssize(one.settled) > model::max_settled)
        throw std::logic_error("round: more settled tokens than the MTP layer takes");
      whose.push_back(i);
      if (depth == 0) {
        drafting.push_back(
            {one.lane, one.position - std::ssize(one.settled), one.settled, true, true});
      } else {
        drafting.push_back(
            {one.lane, one.position + depth - 1, std::span(rows_[i]).last(1), false, true});
      }
    }
    std::vector<std::int32_t> ids(drafting.size());
    lm.draft(drafting, ids);
    for (std::size_t i = 0; i < whose.size(); ++i) rows_[whose[i]].push_back(ids[i]);
  }

  std::vector<std::vector<std::int32_t>> rows_;
};

}  // namespace qwen38::test

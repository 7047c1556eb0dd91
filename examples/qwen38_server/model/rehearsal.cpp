// SPDX-License-Identifier: Apache-2.0
#include "model/rehearsal.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace qwen38::model {
namespace {

/// One lane that goes from pass to pass.
class rehearsing_lane {
 public:
  explicit rehearsing_lane(causal_lm& lm) : lm_(lm), limits_(lm.get_limits()) {
    std::int64_t const slots = std::min<std::int64_t>(
        limits_.max_context, std::int64_t{limits_.kv_pages} * limits_.page_tokens);
    pages_.resize(
        static_cast<std::size_t>((slots + limits_.page_tokens - 1) / limits_.page_tokens));
    std::iota(pages_.begin(), pages_.end(), 0);
    left_ = slots;
  }

  /// A whole chunk where there is room for it, a state that goes on from there, and one row more.
  void prefill() {
    lm_.begin(0, pages_);
    if (left_ > limits_.prefill_chunk + 1) {
      pass(limits_.prefill_chunk);
      if (limits_.snapshots > 0) {
        lm_.save(0, 0);
        lm_.resume(0, pages_, 0, position_);
      }
    }
    if (left_ > 1) pass(1);
  }

  /// With as many drafts as there is room for; a null choice: the model gives logits.
  void round(int drafts, ops::token_choice const* choice) {
    drafts = static_cast<int>(std::min<std::int64_t>(drafts, left_ - 1));
    if (drafts < 0 || position_ == 0) return;
    std::vector<std::int32_t> const settled(1, 0);
    round_lane const part{0, position_, settled, drafts, choice};
    round_result result;
    lm_.round({&part, 1}, {&result, 1});
    if (drafts > 0) lm_.keep(0, 1);
    advance(1);
  }

 private:
  /// Rows of a prompt and, one behind, those of the MTP layer.
  void pass(std::int64_t rows) {
    std::vector<std::int32_t> const ids(static_cast<std::size_t>(rows), 0);
    sequence_rows const chunk{0, position_, ids, false, rows - 1};
    lm_.forward({&chunk, 1});
    std::int64_t const from = std::max<std::int64_t>(position_ - 1, 0);
    std::int64_t const mtp_rows = position_ + rows - 1 - from;
    advance(rows);
    if (!limits_.has_mtp || mtp_rows < 1) return;
    std::int32_t none = -1;
    std::vector<std::int32_t> const shifted(static_cast<std::size_t>(mtp_rows), 0);
    draft_rows const behind{0, from, shifted, true, false};
    lm_.draft({&behind, 1}, {&none, 1});
  }

  void advance(std::int64_t rows) {
    position_ += rows;
    left_ -= rows;
  }

  causal_lm& lm_;
  causal_lm::limits const& limits_;
  std::vector<std::int32_t> pages_;
  std::int64_t position_ = 0;
  std::int64_t left_ = 0;  ///< slots
};

}  // namespace

void rehearse(causal_lm& lm, int most_drafts) {
  rehearsing_lane lane(lm);
  ops::token_choice const greedy;
  ops::token_choice sampled;
  sampled.temperature = 1;
  std::array<ops::token_choice const*, 3> const choices = {&greedy, &sampled, nullptr};
  lane.prefill();
  std::vector<int> depths = {0};  // last: a lane that has done without drafts has none any more
  if (lm.get_limits().has_mtp) depths = {1, 0};
  if (lm.get_limits().has_mtp && most_drafts > 1) depths.insert(depths.begin(), most_drafts);
  for (int const drafts : depths) {
    for (ops::token_choice const* choice : choices) {
      // A backend that records rounds does so the second time.
      for (int time = 0; time < 2; ++time) lane.round(drafts, choice);
    }
  }
}

}  // namespace qwen38::model

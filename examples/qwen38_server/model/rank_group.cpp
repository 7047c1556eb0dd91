// SPDX-License-Identifier: Apache-2.0
#include "model/rank_group.hpp"

namespace qwen38::model {

rank_group::rank_group(std::vector<std::shared_ptr<parallel::communicator>> ends,
                       rank_factory const& make_rank)
    : models_(ends.size()), team_(std::move(ends)) {
  team_.run(
      [&](int index) { models_[static_cast<std::size_t>(index)] = make_rank(team_.end(index)); });
}

causal_lm::limits const& rank_group::get_limits() const noexcept {
  return models_.front()->get_limits();
}

void rank_group::begin(int lane, std::span<std::int32_t const> pages) {
  team_.run([&](int index) { rank(index).begin(lane, pages); });
}

void rank_group::save(int lane, std::int32_t snapshot) {
  team_.run([&](int index) { rank(index).save(lane, snapshot); });
}

void rank_group::resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
                        std::int64_t position) {
  team_.run([&](int index) { rank(index).resume(lane, pages, snapshot, position); });
}

std::span<float const> rank_group::forward(std::span<sequence_rows const> batch) {
  std::span<float const> logits;
  team_.run([&](int index) {
    auto const own = rank(index).forward(batch);
    team_.end(index)->check();
    if (index == 0) logits = own;
  });
  return logits;
}

void rank_group::round(std::span<round_lane const> batch, std::span<round_result> results) {
  team_.run([&](int index) {
    std::vector<round_result> own(results.size());
    rank(index).round(batch, index == 0 ? results : std::span(own));
    team_.end(index)->check();
  });
}

void rank_group::keep(int lane, std::int64_t rows) {
  team_.run([&](int index) { rank(index).keep(lane, rows); });
}

void rank_group::draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) {
  team_.run([&](int index) {
    // All ranks find the same ids.
    std::vector<std::int32_t> own(next_ids.size());
    rank(index).draft(batch, index == 0 ? next_ids : std::span(own));
    team_.end(index)->check();
  });
}

}  // namespace qwen38::model

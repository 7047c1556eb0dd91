// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/qwen38.hpp"
#include "parallel/rank_team.hpp"

namespace qwen38::model {

/// One model cut over ranks that run in step, each on its own thread: to the caller a single
/// causal_lm. A call that every rank refuses leaves the group as it was; after any other failure
/// further calls throw (internal).
class rank_group final : public causal_lm {
 public:
  /// Makes one rank's model, given its end of the group; called on the rank's thread, so that its
  /// memory is that thread's.
  using rank_factory =
      std::function<std::unique_ptr<qwen38_model>(std::shared_ptr<parallel::communicator>)>;

  /// `ends`: the communicators in rank order.
  rank_group(std::vector<std::shared_ptr<parallel::communicator>> ends,
             rank_factory const& make_rank);

  [[nodiscard]] limits const& get_limits() const noexcept override;
  void begin(int lane, std::span<std::int32_t const> pages) override;
  void save(int lane, std::int32_t snapshot) override;
  void resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
              std::int64_t position) override;
  std::span<float const> forward(std::span<sequence_rows const> batch) override;
  void round(std::span<round_lane const> batch, std::span<round_result> results) override;
  void keep(int lane, std::int64_t rows) override;
  void draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) override;

  [[nodiscard]] int size() const noexcept { return team_.size(); }
  [[nodiscard]] qwen38_model& rank(int index) { return *models_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<std::unique_ptr<qwen38_model>> models_;
  parallel::rank_team team_;  // its threads end before the models do
};

}  // namespace qwen38::model

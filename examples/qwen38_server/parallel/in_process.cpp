// SPDX-License-Identifier: Apache-2.0
#include "parallel/in_process.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <qpn/candidates.hpp>

#include "ops/cpu/kernels.hpp"
#include "parallel/rendezvous.hpp"
#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

using operation = call_shape::operation;

struct group {
  explicit group(int size)
      : ranks(size), rows(static_cast<std::size_t>(size)), lists(rows.size()) {}

  rendezvous ranks;
  // Each rank's own; read by all between the meetings of a call.
  std::vector<ops::tensor> rows;
  std::vector<candidate_lists> lists;
};

float* row(ops::tensor const& t, std::int64_t index) {
  return static_cast<float*>(t.slice_rows(index, 1).data);
}

class in_process final : public communicator {
 public:
  in_process(std::shared_ptr<group> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return shared_->ranks.size(); }
  [[nodiscard]] char const* name() const noexcept override { return "threads of one process"; }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override { return 0; }
  [[nodiscard]] bool can_capture() const noexcept override { return false; }

  void sum_into(ops::tensor partial, ops::tensor x, norm_step const& then) override {
    publish(operation::sum, partial);
    for (std::int64_t r = 0; r < partial.rows; ++r) {
      sum_.assign(row(partial_of(0), r), row(partial_of(0), r) + partial.cols);
      for (int other = 1; other < size(); ++other) {
        float const* const terms = row(partial_of(other), r);
        for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += terms[c];
      }
      float* const target = row(x, r);
      for (std::size_t c = 0; c < sum_.size(); ++c) target[c] += sum_[c];
      if (then.w == nullptr) continue;
      ops::cpu::rms_norm_row(target, then.w->data(), x.cols, then.eps, true, row(then.y, r));
    }
    shared_->ranks.meet();
  }

  void gather_columns(ops::tensor shard, ops::tensor full) override {
    publish(operation::gather, shard);
    if (rank_ == 0) {
      for (int other = 0; other < size(); ++other) {
        ops::tensor const columns = full.slice_cols(other * shard.cols, shard.cols);
        for (std::int64_t r = 0; r < shard.rows; ++r) {
          std::copy_n(row(partial_of(other), r), shard.cols, row(columns, r));
        }
      }
    }
    shared_->ranks.meet();
  }

  void merge_candidates(candidate_lists const& lists) override {
    shared_->lists[static_cast<std::size_t>(rank_)] = lists;
    shared_->ranks.begin_call(rank_, {operation::merge, lists.rows, lists.candidates});
    std::size_t const entries = static_cast<std::size_t>(lists.rows * lists.candidates);
    std::vector<std::int32_t> ids;
    std::vector<float> values;
    for (candidate_lists const& other : shared_->lists) {
      ids.insert(ids.end(), other.ids, other.ids + entries);
      values.insert(values.end(), other.values, other.values + entries);
    }
    shared_->ranks.meet();
    qpn::status const merged = qpn::merge_candidates(
        {lists.rows, lists.candidates, size(), ids.data(), values.data(), lists.ids, lists.values});
    if (!merged.ok()) throw error(error_kind::internal, merged.what);
  }

  void max_over_ranks(std::span<ranked_id> best) override {
    shared_->ranks.max_over_ranks(rank_, best);
  }

  void check() override {}  // every call has waited for all ranks
  void give_up() noexcept override { shared_->ranks.give_up(rank_); }
  [[nodiscard]] bool rejoin() noexcept override { return shared_->ranks.rejoin(rank_); }

 private:
  /// Returns when all ranks have published, and what they have published fits together.
  void publish(operation what, ops::tensor const& rows) {
    shared_->rows[static_cast<std::size_t>(rank_)] = rows;
    shared_->ranks.begin_call(rank_, {what, rows.rows, rows.cols});
  }

  [[nodiscard]] ops::tensor const& partial_of(int other) const {
    return shared_->rows[static_cast<std::size_t>(other)];
  }

  std::shared_ptr<group> shared_;
  int rank_;
  std::vector<float> sum_;  // one row
};

}  // namespace

std::vector<std::shared_ptr<communicator>> make_in_process_group(int size) {
  auto const shared = std::make_shared<group>(size);
  std::vector<std::shared_ptr<communicator>> ends;
  for (int rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_shared<in_process>(shared, rank));
  }
  return ends;
}

}  // namespace qwen38::parallel

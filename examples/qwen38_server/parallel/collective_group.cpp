// SPDX-License-Identifier: Apache-2.0
#include "parallel/collective_group.hpp"

#include <algorithm>
#include <mutex>
#include <string>

#include "ops/cuda/memory.hpp"
#include "parallel/rendezvous.hpp"
#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

using namespace ops::cuda;

/// What the ranks know of each other.
class group {
 public:
  group(std::vector<std::shared_ptr<collectives>> ends)
      : ranks(static_cast<int>(ends.size())), ends_(std::move(ends)), calls_(ends_.size()) {}

  void start_call(int rank) {
    std::scoped_lock const lock(mutex_);
    if (given_up_ > 0) {
      half_done_ = true;
      throw error(error_kind::internal, "a rank gave up while another waited for it");
    }
    ++calls_[static_cast<std::size_t>(rank)];
  }
  /// Where a rank has called what another never will, nothing but an abort ends its work.
  void give_up(int rank) noexcept {
    ranks.give_up(rank);
    std::scoped_lock const lock(mutex_);
    ++given_up_;
    if (!calls_agree()) {
      for (auto const& one : ends_) one->abort();
    }
  }
  [[nodiscard]] bool rejoin(int rank) noexcept {
    std::scoped_lock const lock(mutex_);
    if (half_done_ || !calls_agree() || !ranks.rejoin(rank)) return false;
    --given_up_;
    return true;
  }

  rendezvous ranks;

 private:
  [[nodiscard]] bool calls_agree() const {
    return std::ranges::count(calls_, calls_.front()) == std::ssize(calls_);
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<collectives>> ends_;
  std::vector<std::uint64_t> calls_;
  int given_up_ = 0;
  bool half_done_ = false;  ///< a rank went on after another had given up
};

class collective_end final : public communicator {
 public:
  collective_end(std::shared_ptr<group> shared, std::shared_ptr<device> on,
                 std::shared_ptr<collectives> end, int rank,
                 collective_group_options const& options)
      : shared_(std::move(shared)),
        device_(std::move(on)),
        end_(std::move(end)),
        rank_(rank),
        options_(options) {
    std::int64_t const most = options_.max_rows * options_.max_cols;
    std::int64_t const lists = size() * options_.max_rows * qpn::max_candidates;
    std::string const what = "the exchange between ranks";
    packed_ = make_array<float>(*device_, most, what);
    if (options_.order == sum_order::by_rank) {
      terms_ = make_array<float>(*device_, size() * most, what);
    }
    list_ids_ = make_array<std::int32_t>(*device_, lists, what);
    list_values_ = make_array<float>(*device_, lists, what);
    best_ = make_array<ranked_id>(*device_, size() * options_.max_rows, what);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return shared_->ranks.size(); }
  [[nodiscard]] char const* name() const noexcept override {
    return options_.order == sum_order::by_rank ? "NCCL all-gather and sums in rank order"
                                                : "NCCL all-reduce, in no fixed order";
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return packed_.bytes() + terms_.bytes() + list_ids_.bytes() + list_values_.bytes() +
           best_.bytes() + columns_.bytes();
  }
  [[nodiscard]] bool can_capture() const noexcept override { return true; }

  void sum_into(ops::tensor partial, ops::tensor x, norm_step const& then) override {
    start_call(partial.rows);
    if (partial.cols > options_.max_cols) {
      throw error(error_kind::internal, "sum over ranks: " + std::to_string(partial.cols) +
                                            " columns, expected at most " +
                                            std::to_string(options_.max_cols));
    }
    if (partial.rows == 0) return;
    std::int64_t const count = partial.rows * partial.cols;
    rank_sum_params kernel;
    kernel.ranks = 1;
    if (options_.order == sum_order::by_rank) {
      end_->all_gather(side_by_side(partial), terms_.as(), count);
      kernel.terms = terms_.as<float>();
      kernel.ranks = size();
    } else {
      auto* const sum = static_cast<float*>(side_by_side(partial));
      end_->all_reduce(sum, count);
      kernel.terms = sum;
    }
    kernel.x = static_cast<float*>(x.data);
    kernel.x_stride = x.stride;
    kernel.rows = partial.rows;
    kernel.cols = partial.cols;
    if (then.w != nullptr) {
      kernel.then = {
          then.w->data(), then.eps, {then.y.data, then.y.stride, then.y.type == qpn::dtype::f16}};
    }
    device_->launch(kernel);
  }

  void gather_columns(ops::tensor shard, ops::tensor full) override {
    start_call(shard.rows);
    if (shard.rows == 0) return;
    std::int64_t const count = shard.rows * shard.cols;
    // Side by side before they are sent, and again where they arrive.
    auto* const own = columns_.at_least<float>(*device_, (rank_ == 0 ? 1 + size() : 1) * count,
                                               "the exchange of logits");
    std::size_t const width = static_cast<std::size_t>(shard.cols) * sizeof(float);
    auto const height = static_cast<std::size_t>(shard.rows);
    device_->copy({own, width}, lines(shard), width, height);
    float* const all = own + count;
    end_->gather_to_first(own, all, count);
    for (int from = 0; rank_ == 0 && from < size(); ++from) {
      device_->copy(lines(full.slice_cols(from * shard.cols, shard.cols)),
                    {all + from * count, width}, width, height);
    }
  }

  void merge_candidates(candidate_lists const& lists) override {
    qpn::merge_candidates_args merged;
    merged.m = lists.rows;
    merged.candidates = lists.candidates;
    merged.shards = size();
    merged.ids = list_ids_.as<std::int32_t>();
    merged.values = list_values_.as<float>();
    merged.merged_ids = lists.ids;
    merged.merged_values = lists.values;
    qpn::status const checked = qpn::detail::check_merge_candidates(merged);
    if (!checked.ok()) throw error(error_kind::internal, checked.what);
    start_call(lists.rows);
    if (lists.rows == 0) return;
    std::int64_t const count = lists.rows * lists.candidates;
    end_->all_gather(lists.ids, list_ids_.as(), count);
    end_->all_gather(lists.values, list_values_.as(), count);
    device_->launch(merge_lists_params{merged});
  }

  void max_over_ranks(ops::token_list best) override {
    std::int64_t const rows = std::ssize(best);
    start_call(rows);
    if (rows == 0) return;
    static_assert(sizeof(ranked_id) == 2 * sizeof(std::uint32_t));
    end_->all_gather(best.data(), best_.as(), 2 * rows);
    device_->launch(best_of_ranks_params{best_.as<ranked_id>(), best.data(), rows, size()});
  }
  void check() override { end_->check(); }
  void give_up() noexcept override { shared_->give_up(rank_); }
  [[nodiscard]] bool rejoin() noexcept override { return shared_->rejoin(rank_); }

 private:
  static byte_lines lines(ops::tensor const& rows) {
    return {rows.data, static_cast<std::size_t>(rows.stride) * sizeof(float)};
  }

  void start_call(std::int64_t rows) {
    if (rows > options_.max_rows) {
      throw error(error_kind::internal, "exchange between ranks: " + std::to_string(rows) +
                                            " rows, expected at most " +
                                            std::to_string(options_.max_rows));
    }
    shared_->start_call(rank_);
  }

  [[nodiscard]] void* side_by_side(ops::tensor const& rows) {
    if (rows.stride == rows.cols) return rows.data;
    std::size_t const width = static_cast<std::size_t>(rows.cols) * sizeof(float);
    device_->copy({packed_.as(), width}, lines(rows), width, static_cast<std::size_t>(rows.rows));
    return packed_.as();
  }

  std::shared_ptr<group> shared_;
  std::shared_ptr<device> device_;
  std::shared_ptr<collectives> end_;
  int rank_;
  collective_group_options options_;
  device_block packed_;  ///< [rows][cols] the rank's term, side by side
  device_block terms_;   ///< [ranks][rows][cols]
  device_block list_ids_;
  device_block list_values_;
  device_block best_;  ///< [ranks][rows]
  scratch_block columns_;
};

}  // namespace

std::vector<std::shared_ptr<communicator>> make_collective_group(
    std::vector<std::shared_ptr<device>> const& devices,
    std::vector<std::shared_ptr<collectives>> const& ends,
    collective_group_options const& options) {
  auto const shared = std::make_shared<group>(ends);
  std::vector<std::shared_ptr<communicator>> made;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    made.push_back(std::make_shared<collective_end>(shared, devices[rank], ends[rank],
                                                    static_cast<int>(rank), options));
  }
  return made;
}

}  // namespace qwen38::parallel

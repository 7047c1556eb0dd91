// SPDX-License-Identifier: Apache-2.0
#include "parallel/in_process.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <qpn/detail/candidate_key.hpp>
#include <thread>

#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

constexpr int spin_turns = 100;  // some ten microseconds where no other thread wants the processor

enum class operation : std::uint8_t { sum, gather, maximum };

/// What a rank shows the others for the length of one call.
struct publication {
  operation what = operation::sum;
  ops::tensor rows;
  std::span<ranked_id const> best;

  [[nodiscard]] bool matches(publication const& other) const {
    return what == other.what && rows.rows == other.rows.rows && rows.cols == other.rows.cols &&
           best.size() == other.best.size();
  }
};

struct group {
  explicit group(int size)
      : gave_up(static_cast<std::size_t>(size), false), published(gave_up.size()) {}

  /// Waits until every rank is here: awake for a moment, since a pass has many meetings and most
  /// waits are short, then asleep.
  void meet() {
    std::uint64_t const mine = round.load(std::memory_order_relaxed);
    {
      std::scoped_lock const lock(mutex);
      if (!is_abandoned() && ++arrived == published.size()) {
        arrived = 0;
        round.store(mine + 1, std::memory_order_release);
        changed.notify_all();
        return;
      }
    }
    for (int turn = 0; turn < spin_turns; ++turn) {
      if (round.load(std::memory_order_acquire) != mine) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return round.load() != mine || is_abandoned(); });
    if (round.load() != mine) return;
    half_done = true;
    throw error(error_kind::internal, "a rank gave up while another waited for it");
  }

  [[nodiscard]] bool is_abandoned() const {
    return std::ranges::find(gave_up, true) != gave_up.end();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t arrived = 0;
  std::atomic<std::uint64_t> round{0};
  std::vector<bool> gave_up;
  bool half_done = false;
  std::vector<publication> published;  // each rank's own; read by all between two meetings
};

/// Larger for what is chosen before: what is no number before all, so that a broken row shows.
std::uint64_t key_of(ranked_id const& one) {
  return one.id < 0 ? qpn::detail::no_candidate
                    : qpn::detail::candidate_key(one.value, static_cast<std::uint32_t>(one.id));
}

float* row(ops::tensor const& t, std::int64_t index) {
  return static_cast<float*>(t.slice_rows(index, 1).data);
}

class in_process final : public communicator {
 public:
  in_process(std::shared_ptr<group> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(shared_->published.size());
  }

  void sum_into(ops::tensor partial, ops::tensor x) override {
    publish({operation::sum, partial, {}});
    for (std::int64_t r = 0; r < partial.rows; ++r) {
      sum_.assign(row(partial_of(0), r), row(partial_of(0), r) + partial.cols);
      for (int other = 1; other < size(); ++other) {
        float const* const terms = row(partial_of(other), r);
        for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += terms[c];
      }
      float* const target = row(x, r);
      for (std::size_t c = 0; c < sum_.size(); ++c) target[c] += sum_[c];
    }
    shared_->meet();
  }

  void gather_columns(ops::tensor shard, ops::tensor full) override {
    publish({operation::gather, shard, {}});
    if (rank_ == 0) {
      for (int other = 0; other < size(); ++other) {
        ops::tensor const columns = full.slice_cols(other * shard.cols, shard.cols);
        for (std::int64_t r = 0; r < shard.rows; ++r) {
          std::copy_n(row(partial_of(other), r), shard.cols, row(columns, r));
        }
      }
    }
    shared_->meet();
  }

  void max_over_ranks(std::span<ranked_id> best) override {
    publish({operation::maximum, {}, best});
    std::vector<ranked_id> largest(best.size());
    for (publication const& other : shared_->published) {
      for (std::size_t i = 0; i < best.size(); ++i) {
        if (key_of(other.best[i]) > key_of(largest[i])) largest[i] = other.best[i];
      }
    }
    shared_->meet();
    std::ranges::copy(largest, best.begin());
  }

  void give_up() noexcept override {
    std::scoped_lock const lock(shared_->mutex);
    shared_->gave_up[static_cast<std::size_t>(rank_)] = true;
    shared_->changed.notify_all();
  }

  [[nodiscard]] bool rejoin() noexcept override {
    std::scoped_lock const lock(shared_->mutex);
    if (shared_->half_done) return false;
    shared_->gave_up[static_cast<std::size_t>(rank_)] = false;
    return true;
  }

 private:
  /// Returns when all ranks have published, and what they have published fits together.
  void publish(publication const& own) {
    shared_->published[static_cast<std::size_t>(rank_)] = own;
    shared_->meet();
    for (publication const& other : shared_->published) {
      if (!other.matches(own)) {
        throw error(error_kind::internal,
                    "ranks met in different calls or with different shapes: expected the same on "
                    "each");
      }
    }
  }

  [[nodiscard]] ops::tensor const& partial_of(int other) const {
    return shared_->published[static_cast<std::size_t>(other)].rows;
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

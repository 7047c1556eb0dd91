// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_team.hpp"

#include <algorithm>
#include <exception>

namespace qwen38::parallel {

rank_team::rank_team(std::vector<std::shared_ptr<communicator>> ends) : ends_(std::move(ends)) {
  try {
    for (int rank = 0; rank < size(); ++rank) {
      threads_.emplace_back([this, rank] { work(rank); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

rank_team::~rank_team() {
  stop();
}

void rank_team::stop() noexcept {
  {
    std::scoped_lock const lock(mutex_);
    stopping_ = true;
    started_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void rank_team::run(std::function<void(int rank)> const& task) {
  if (broken_) {
    throw error(error_kind::internal, "the ranks stopped together after one of them failed (" +
                                          *broken_ + "): the model must be loaded again");
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  pending_ = size();
  failures_ = 0;
  first_failure_.reset();
  ++turn_;
  started_.notify_all();
  finished_.wait(lock, [this] { return pending_ == 0; });
  if (!first_failure_) return;
  bool const all_failed = failures_ == size();
  if (!all_failed || !std::ranges::all_of(ends_, [](auto const& end) { return end->rejoin(); })) {
    broken_ = first_failure_->what();
  }
  throw *first_failure_;
}

void rank_team::work(int rank) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return turn_ != seen || stopping_; });
    if (stopping_) return;
    seen = turn_;
    lock.unlock();
    run_task(rank);
    lock.lock();
    if (--pending_ == 0) finished_.notify_one();
  }
}

void rank_team::run_task(int rank) {
  try {
    (*task_)(rank);
  } catch (error const& failure) {
    record(rank, failure);
  } catch (std::exception const& failure) {
    record(rank, error(error_kind::internal, failure.what()));
  }
}

void rank_team::record(int rank, error const& failure) {
  {
    // Before the others are released: what they then throw is a consequence.
    std::scoped_lock const lock(mutex_);
    ++failures_;
    if (!first_failure_) first_failure_ = failure;
  }
  end(rank)->give_up();
}

}  // namespace qwen38::parallel

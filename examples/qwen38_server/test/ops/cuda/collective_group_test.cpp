// SPDX-License-Identifier: Apache-2.0
// The group over a library's collectives, with a library of a few lines on the emulated devices,
// whose memory every thread can read.

#include "parallel/collective_group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "parallel/rendezvous.hpp"
#include "test/ops/cuda/device_ranks.hpp"

namespace qwen38::test {
namespace {

using parallel::rank_team;
using parallel::sum_order;

/// Collectives between threads.
class thread_collectives final : public ops::cuda::collectives {
 public:
  struct group {
    explicit group(int size) : ranks(size), own(static_cast<std::size_t>(size)) {}
    parallel::rendezvous ranks;
    std::vector<void const*> own;
    std::atomic<int> aborted = 0;
  };
  thread_collectives(std::shared_ptr<group> shared, int rank)
      : shared_(std::move(shared)), rank_(rank) {}

  void all_gather(void const* own, void* all, std::int64_t count) override {
    show(own);
    for (std::size_t from = 0; from < shared_->own.size(); ++from) {
      std::memcpy(static_cast<std::uint32_t*>(all) + static_cast<std::int64_t>(from) * count,
                  shared_->own[from], static_cast<std::size_t>(count) * 4);
    }
    shared_->ranks.meet();
  }
  void gather_to_first(void const* own, void* all, std::int64_t count) override {
    std::vector<std::uint32_t> unused(static_cast<std::size_t>(count) * shared_->own.size());
    all_gather(own, rank_ == 0 ? all : unused.data(), count);
  }
  void all_reduce(float* values, std::int64_t count) override {
    show(values);
    std::vector<float> sums(static_cast<std::size_t>(count), 0.0F);
    for (void const* other : shared_->own) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<float const*>(other)[i];
    }
    shared_->ranks.meet();
    std::ranges::copy(sums, values);
  }
  void check() override {}
  void abort() noexcept override { ++shared_->aborted; }

 private:
  void show(void const* own) {
    shared_->own[static_cast<std::size_t>(rank_)] = own;
    shared_->ranks.meet();
  }

  std::shared_ptr<group> shared_;
  int rank_;
};

struct collective_ranks {
  collective_ranks(int size, sum_order order)
      : devices(open_ranks(size, true)),
        shared(std::make_shared<thread_collectives::group>(size)),
        team(make_ends(order)) {}

  std::vector<std::shared_ptr<parallel::communicator>> make_ends(sum_order order) {
    std::vector<std::shared_ptr<ops::cuda::collectives>> ends;
    for (int rank = 0; rank < std::ssize(devices); ++rank) {
      ends.push_back(std::make_shared<thread_collectives>(shared, rank));
    }
    return parallel::make_collective_group(devices, ends, {8, 64, order});
  }

  std::vector<std::shared_ptr<ops::cuda::device>> devices;
  std::shared_ptr<thread_collectives::group> shared;
  rank_team team;
};

TEST(collective_group, gathered_terms_are_added_in_rank_order) {
  // No other order gives that sum.
  std::vector<float> const terms = {0x1p24F, 1, -0x1p24F, 0.5F};
  float const wanted = 3 + (((terms[0] + terms[1]) + terms[2]) + terms[3]);
  for (sum_order order : {sum_order::by_rank, sum_order::any}) {
    collective_ranks ranks(4, order);
    ranks.team.run([&](int rank) {
      auto& own = *ranks.devices[static_cast<std::size_t>(rank)];
      for (std::int64_t padding : {0, 3}) {
        device_rows partial(own, qpn::dtype::f32, 2, 5, padding);
        device_rows x(own, qpn::dtype::f32, 2, 5, 1);
        partial.write(std::vector<float>(10, terms[static_cast<std::size_t>(rank)]));
        x.write(std::vector<float>(10, 3.0F));
        ranks.team.end(rank)->sum_into(partial.view(), x.view());
        EXPECT_EQ(x.read(), std::vector<float>(10, wanted)) << "rank " << rank;
      }
    });
  }
}

TEST(collective_group, columns_and_candidates_come_together) {
  collective_ranks ranks(3, sum_order::by_rank);
  ranks.team.run([&](int rank) {
    auto& own = *ranks.devices[static_cast<std::size_t>(rank)];
    auto& end = *ranks.team.end(rank);
    device_rows shard(own, qpn::dtype::f32, 2, 2, 1);
    device_rows full(own, qpn::dtype::f32, 2, 6, 1);
    auto const first = static_cast<float>(10 * rank);
    shard.write(std::vector<float>{first, first + 1, first + 2, first + 3});
    end.gather_columns(shard.view(), rank == 0 ? full.view() : ops::tensor{});
    if (rank == 0) {
      EXPECT_EQ(full.read(), (std::vector<float>{0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23}));
    }
    std::vector<std::int32_t> ids = {rank, rank + 10};
    std::vector<float> values = {rank == 1 ? 9.0F : 5.0F, 4.0F};
    end.merge_candidates({ids.data(), values.data(), 1, 2});
    EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 0})) << "rank " << rank;
    EXPECT_EQ(values, (std::vector<float>{9, 5})) << "rank " << rank;
    std::vector<ops::ranked_id> best = {{values[0], rank + 7}, {static_cast<float>(rank), rank}};
    end.max_over_ranks(best);
    EXPECT_EQ(best[0].id, 7) << "rank " << rank;
    EXPECT_EQ(best[1].id, 2) << "rank " << rank;
  });
}

TEST(collective_group, work_is_aborted_only_where_a_rank_waits_for_one_that_gave_up) {
  for (bool all : {true, false}) {
    collective_ranks ranks(2, sum_order::by_rank);
    std::atomic<bool> called = false;
    try {
      ranks.team.run([&](int rank) {
        auto& own = *ranks.devices[static_cast<std::size_t>(rank)];
        device_rows rows(own, qpn::dtype::f32, 1, 4);
        while (!all && rank == 0 && !called) std::this_thread::yield();
        if (all || rank == 0) throw error(error_kind::internal, "refused");
        ops::tensor const none = rows.view().slice_rows(0, 0);
        for (;;) {  // until the group says that rank 0 is gone
          ranks.team.end(rank)->sum_into(none, none);
          called = true;
        }
      });
      FAIL();
    } catch (error const& failure) {
      EXPECT_STREQ(failure.what(), "refused");
    }
    EXPECT_EQ(ranks.shared->aborted > 0, !all);
    if (all) {
      ranks.team.run([&](int rank) { ranks.team.end(rank)->check(); });
    }
  }
}

}  // namespace
}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
// Calls between ranks in recorded work: in a graph of each rank's own stream where it has a GPU of
// its own, and in one graph of all ranks' streams where they share one.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/ops/cuda/device_ranks.hpp"

namespace qwen38::test {
namespace {

using ops::cuda::device_block;
using parallel::rank_team;

/// On a machine with several GPUs also with one for each rank.
std::vector<bool> placements(int size) {
  return test_gpu_count() >= size && size > 1 && !test_device_is_emulated()
             ? std::vector{true, false}
             : std::vector{true};
}

/// All kinds of calls, between operations of the rank's own, on inputs that differ from round to
/// round.
class rank_rounds {
 public:
  static constexpr int rounds = 5;

  rank_rounds(ranks_on_devices& of, int rank)
      : device_(of.device(rank)),
        backend_(of.backend(rank)),
        end_(*of.team.end(rank)),
        norm_(backend_.make_constants(random_floats(90, cols))),
        inputs_(device_, qpn::dtype::f32, rounds * rows, cols),
        x_(device_, qpn::dtype::f32, rows, cols, 8),
        partial_(device_, qpn::dtype::f32, rows, cols, 4),
        normed_(device_, qpn::dtype::f32, rows, cols, 4),
        logits_(device_, qpn::dtype::f32, rows, of.team.size() * cols, 4),
        best_memory_(backend_.make_tokens(rows, best_)),
        ids_(ops::cuda::make_array<std::int32_t>(device_, rows, "ids")),
        values_(ops::cuda::make_array<float>(device_, rows, "values")),
        kept_(device_, qpn::dtype::f32, rounds * kept_rows, of.team.size() * cols) {
    auto const own = static_cast<std::uint64_t>(rank);
    inputs_.write(random_floats(own, rounds * rows * cols));
  }

  /// Nobody waits for the device: what is set, done and kept of one round lies between the others'.
  void set(int round) {
    copy(x_.view(), inputs_.view().slice_rows(round * rows, rows));
    copy(partial_.view(), inputs_.view().slice_rows((rounds - 1 - round) * rows, rows));
  }
  void work() {
    end_.sum_into(partial_.view(), x_.view(), {norm_.get(), 1e-6F, normed_.view()});
    backend_.copy(normed_.view(), partial_.view());
    end_.sum_into(partial_.view(), x_.view());
    backend_.rms_norm(x_.view(), *norm_, 1e-6F, normed_.view());
    end_.gather_columns(normed_.view(), end_.rank() == 0 ? logits_.view() : ops::tensor{});
    // A row's first element as its best id, and as its list of one.
    auto const element = static_cast<std::size_t>(x_.view().stride) * 4;
    device_.copy({ids_.as(), 4}, {partial_.view().data, 4}, rows * 4, 1);
    device_.copy({values_.as(), 4}, {x_.view().data, element}, 4, rows);
    end_.merge_candidates({ids_.as<std::int32_t>(), values_.as<float>(), rows, 1});
    device_.copy({best_.data(), 8}, {values_.as(), 4}, 4, rows);
    device_.copy({&best_.data()->id, 8}, {ids_.as(), 4}, 4, rows);
    end_.max_over_ranks(best_);
  }
  void keep(int round) {
    ops::tensor const to = kept_.view().slice_rows(round * kept_rows, kept_rows);
    copy(to.slice_rows(0, rows).slice_cols(0, cols), x_.view());
    copy(to.slice_rows(rows, rows).slice_cols(0, cols), normed_.view());
    copy(to.slice_rows(2 * rows, rows), logits_.view());
    device_.copy({to.slice_rows(3 * rows, 1).data, 8}, {best_.data(), 8}, 8 * rows, 1);
  }
  [[nodiscard]] std::vector<float> read() const { return kept_.read(); }

 private:
  static constexpr std::int64_t rows = 3;
  static constexpr std::int64_t cols = 40;
  static constexpr std::int64_t kept_rows = 3 * rows + 1;

  void copy(ops::tensor const& to, ops::tensor const& from) {
    device_.copy({to.data, static_cast<std::size_t>(to.stride) * 4},
                 {from.data, static_cast<std::size_t>(from.stride) * 4},
                 static_cast<std::size_t>(from.cols) * 4, static_cast<std::size_t>(from.rows));
  }

  ops::cuda::device& device_;
  ops::backend& backend_;
  parallel::communicator& end_;
  std::unique_ptr<ops::constants> norm_;
  device_rows inputs_;
  device_rows x_;
  device_rows partial_;
  device_rows normed_;
  device_rows logits_;
  ops::token_list best_;
  std::unique_ptr<ops::storage> best_memory_;
  device_block ids_;
  device_block values_;
  device_rows kept_;
};

/// Each rank's results.
std::vector<std::vector<float>> play(int size, bool one_gpu, bool is_recorded) {
  ranks_on_devices ranks(size, one_gpu);
  std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
  ranks.team.run([&](int rank) {
    ops::backend& backend = ranks.backend(rank);
    rank_rounds own(ranks, rank);
    std::unique_ptr<ops::recording> recorded;
    EXPECT_TRUE(ranks.team.end(rank)->can_capture());
    for (int round = 0; round < rank_rounds::rounds; ++round) {
      own.set(round);
      if (round == 0 || !is_recorded) {
        own.work();
      } else {
        if (round == 1) recorded = backend.record([&] { own.work(); });
        backend.replay(*recorded);
      }
      own.keep(round);
    }
    EXPECT_EQ(backend.counts().recordings, is_recorded ? 1U : 0U) << "rank " << rank;
    EXPECT_EQ(backend.counts().replays, is_recorded ? rank_rounds::rounds - 1U : 0U);
    results[static_cast<std::size_t>(rank)] = own.read();
    ranks.team.end(rank)->check();
  });
  return results;
}

TEST(graphs_of_ranks, give_the_bits_of_the_calls_one_by_one) {
  for (int size : test_device_is_emulated() ? std::vector{1, 3} : std::vector{1, 2, 3, 4}) {
    for (bool one_gpu : placements(size)) {
      auto const wanted = play(size, one_gpu, false);
      auto const got = play(size, one_gpu, true);
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        EXPECT_TRUE(same_bits(got[rank], wanted[rank]))
            << "rank " << rank << " of " << size << ", one GPU " << one_gpu;
      }
    }
  }
}

/// Rows of ones on each rank, and their sums.
struct summing_rank {
  summing_rank(ranks_on_devices& of, int rank)
      : end(*of.team.end(rank)),
        partial(of.device(rank), qpn::dtype::f32, 2, 40),
        x(of.device(rank), qpn::dtype::f32, 2, 40) {
    partial.write(std::vector<float>(80, 1.0F));
  }
  void add(int calls = 1) const {
    for (int call = 0; call < calls; ++call) end.sum_into(partial.view(), x.view());
  }
  void expect(float sum) const { EXPECT_EQ(x.read(), std::vector<float>(80, sum)); }

  parallel::communicator& end;
  device_rows partial;
  device_rows x;
};

TEST(graphs_of_ranks, replays_go_on_where_the_calls_before_them_ended) {
  // Odd: a replay begins with the half of the inbox that ended the last one.
  constexpr int calls = 3;
  constexpr int replays = 5;
  for (bool one_gpu : placements(4)) {
    SCOPED_TRACE(one_gpu ? "one GPU" : "a GPU each");
    ranks_on_devices ranks(4, one_gpu);
    ranks.team.run([&](int rank) {
      ops::backend& backend = ranks.backend(rank);
      summing_rank const own(ranks, rank);
      own.add();
      auto const recorded = backend.record([&] { own.add(calls); });
      own.expect(4);
      for (int replay = 0; replay < replays; ++replay) backend.replay(*recorded);
      own.expect(4 * (1 + calls * replays));
      own.add();
      own.expect(4 * (2 + calls * replays));
      own.end.check();
    });
  }
}

std::string broken_by(std::string const& what) {
  return "the ranks stopped together after one of them failed (" + what +
         "): the model must be loaded again";
}

TEST(graphs_on_one_gpu, a_rank_that_fails_while_work_is_recorded_ends_the_group_with_its_sentence) {
  for (int size : {2, 4}) {
    for (int culprit = 0; culprit < size; ++culprit) {
      for (int calls : {0, 1, 3}) {
        SCOPED_TRACE("rank " + std::to_string(culprit) + " of " + std::to_string(size) +
                     ", after calls " + std::to_string(calls));
        ranks_on_devices ranks(size, true);
        std::string const what = failure_of(ranks.team, [&](int rank) {
          summing_rank const own(ranks, rank);
          own.add();
          static_cast<void>(ranks.backend(rank).record([&] {
            own.add(rank == culprit ? calls : 4);
            if (rank == culprit)
              throw error(error_kind::corrupt_data, "the culprit's own sentence");
          }));
        });
        EXPECT_EQ(what, "the culprit's own sentence");
        EXPECT_EQ(failure_of(ranks.team, [](int) {}), broken_by(what));
        // No stream is left in the capture.
        for (auto const& one : ranks.devices) {
          device_rows rows(*one, qpn::dtype::f32, 1, 1);
          rows.write(std::vector<float>{7});
          EXPECT_EQ(rows.read(), std::vector<float>{7});
        }
      }
    }
  }
}

TEST(graphs_on_one_gpu, what_all_ranks_refuse_to_record_leaves_the_group_as_it_was) {
  ranks_on_devices ranks(4, true);
  std::vector<std::unique_ptr<summing_rank>> own(4);
  ranks.team.run([&](int rank) {
    own[static_cast<std::size_t>(rank)] = std::make_unique<summing_rank>(ranks, rank);
    own[static_cast<std::size_t>(rank)]->add();
  });
  // Behind sums that are still under way.
  constexpr int attempts = 2;
  int const under_way = test_device_is_emulated() ? 3 : 1000;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    EXPECT_EQ(failure_of(ranks.team,
                         [&](int rank) {
                           own[static_cast<std::size_t>(rank)]->add(under_way);
                           static_cast<void>(ranks.backend(rank).record(
                               [] { throw error(error_kind::invalid_argument, "refused"); }));
                         }),
              "refused");
  }
  ranks.team.run([&](int rank) {
    summing_rank const& at = *own[static_cast<std::size_t>(rank)];
    auto const recorded = ranks.backend(rank).record([&] { at.add(2); });
    ranks.backend(rank).replay(*recorded);
    at.expect(static_cast<float>(4 * (1 + attempts * under_way + 2)));
    EXPECT_EQ(ranks.backend(rank).counts().recordings, 1U);
  });
}

// The others' part of a capture that rank 0 cannot begin.
TEST(graphs_on_one_gpu, a_recording_in_a_recording_is_refused_on_every_rank) {
  ranks_on_devices ranks(3, true);
  std::array<int, 3> refused = {};
  EXPECT_NE(failure_of(ranks.team,
                       [&](int rank) {
                         summing_rank const own(ranks, rank);
                         ops::backend& backend = ranks.backend(rank);
                         own.add();
                         static_cast<void>(backend.record([&] {
                           own.add();
                           try {
                             static_cast<void>(backend.record([&] { own.add(); }));
                           } catch (error const&) {
                             ++refused[static_cast<std::size_t>(rank)];
                             throw;
                           }
                         }));
                       })
                .find("a capture while a graph is captured"),
            std::string::npos);
  EXPECT_EQ(refused, (std::array<int, 3>{1, 1, 1}));
}

TEST(graphs_on_one_gpu, work_that_cannot_be_recorded_is_refused_on_any_rank) {
  for (int culprit : {0, 1}) {
    ranks_on_devices ranks(2, true);
    std::string const what = failure_of(ranks.team, [&](int rank) {
      summing_rank const own(ranks, rank);
      own.add();
      static_cast<void>(ranks.backend(rank).record([&] {
        own.add();
        if (rank == culprit) static_cast<void>(own.x.read());
      }));
    });
    EXPECT_NE(what.find("a download while a graph is captured"), std::string::npos) << what;
  }
}

TEST(graphs_on_one_gpu, a_recording_ends_with_the_scratch_of_any_of_its_ranks) {
  constexpr char const* refusal = "CUDA: recorded work uses scratch that has moved since";
  for (int moved : {0, 2, -1}) {  // -1: on all
    SCOPED_TRACE("rank " + std::to_string(moved));
    ranks_on_devices ranks(3, true);
    std::vector<std::unique_ptr<summing_rank>> own(3);
    std::vector<std::unique_ptr<ops::recording>> recorded(3);
    ranks.team.run([&](int rank) {
      auto const at = static_cast<std::size_t>(rank);
      own[at] = std::make_unique<summing_rank>(ranks, rank);
      own[at]->add();
      recorded[at] = ranks.backend(rank).record([&] { own[at]->add(); });
      ranks.backend(rank).replay(*recorded[at]);
      if (moved < 0 || rank == moved) ranks.device(rank).note_move();
    });
    EXPECT_EQ(failure_of(ranks.team,
                         [&](int rank) {
                           ranks.backend(rank).replay(*recorded[static_cast<std::size_t>(rank)]);
                         }),
              refusal);
    for (int rank = 0; rank < 3; ++rank) own[static_cast<std::size_t>(rank)]->expect(6);
    if (moved >= 0) {
      EXPECT_EQ(failure_of(ranks.team, [](int) {}), broken_by(refusal));
      continue;
    }
    ranks.team.run([&](int rank) {  // recorded again
      auto const at = static_cast<std::size_t>(rank);
      recorded[at] = ranks.backend(rank).record([&] { own[at]->add(); });
      ranks.backend(rank).replay(*recorded[at]);
      own[at]->expect(9);
    });
  }
}

TEST(graphs_on_one_gpu, replays_of_different_recordings_fail_on_every_rank) {
  ranks_on_devices ranks(2, true);
  EXPECT_NE(failure_of(ranks.team,
                       [&](int rank) {
                         summing_rank const own(ranks, rank);
                         own.add();
                         ops::backend& backend = ranks.backend(rank);
                         auto const first = backend.record([&] { own.add(); });
                         auto const second = backend.record([&] { own.add(2); });
                         backend.replay(*second);
                         own.expect(6);
                         backend.replay(rank == 0 ? *first : *second);
                       })
                .find("expected the same on each"),
            std::string::npos);
}

/// What a group relies on: two streams of one GPU, and work of both in a capture of the first one.
struct two_streams {
  two_streams() {
    a.write(std::vector<float>{3});
    b.write(std::vector<float>{4});
    for (auto const& one : devices) one->wait();
  }
  /// b = a in the second stream.
  [[nodiscard]] std::unique_ptr<ops::cuda::device_graph> capture(bool joins) {
    return devices[0]->capture_alone([&] {
      devices[0]->record(*begun);
      devices[1]->wait_for(*begun);
      devices[1]->copy({b.view().data, 4}, {a.view().data, 4}, 4, 1);
      if (!joins) return;
      devices[1]->record(*done);
      devices[0]->wait_for(*done);
    });
  }

  std::vector<std::shared_ptr<ops::cuda::device>> devices = open_ranks(2, true);
  std::unique_ptr<ops::cuda::device::mark> begun = devices[0]->make_mark();
  std::unique_ptr<ops::cuda::device::mark> done = devices[0]->make_mark();
  device_rows a{*devices[0], qpn::dtype::f32, 1, 1};
  device_rows b{*devices[1], qpn::dtype::f32, 1, 1};
};

TEST(captures_of_two_streams, keep_the_work_of_one_that_waits_for_a_mark) {
  two_streams streams;
  auto const graph = streams.capture(true);
  EXPECT_EQ(streams.b.read(), std::vector<float>{4});
  streams.devices[0]->replay_alone(*graph);
  streams.devices[0]->wait();
  EXPECT_EQ(streams.b.read(), std::vector<float>{3});
}

TEST(captures_of_two_streams, are_refused_where_one_is_not_waited_for) {
  two_streams streams;
  EXPECT_THROW(static_cast<void>(streams.capture(false)), error);
  EXPECT_EQ(streams.b.read(), std::vector<float>{4});  // the stream is its own again
  streams.b.write(std::vector<float>{5});
  EXPECT_EQ(streams.b.read(), std::vector<float>{5});
}

}  // namespace
}  // namespace qwen38::test

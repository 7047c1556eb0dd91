// SPDX-License-Identifier: Apache-2.0
// Calls between ranks in captured graphs: of each rank's own stream where it has a GPU of its own,
// and of all ranks' streams together where they share one.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <vector>

#include "parallel/device_group.hpp"
#include "test/ops/cuda/device_ranks.hpp"

namespace qwen38::test {
namespace {

constexpr int calls = 3;  // odd: a replay begins with the half of the inbox that ended the last one
constexpr int replays = 5;

void require(cudaError_t outcome) {
  if (outcome != cudaSuccess) throw error(error_kind::internal, cudaGetErrorString(outcome));
}

class replayed_graph {
 public:
  /// Ends the capture of the stream.
  explicit replayed_graph(cudaStream_t stream) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    require(cudaStreamEndCapture(stream, &graph));
    cudaError_t const made = cudaGraphInstantiateWithFlags(&replay_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    require(made);
  }
  replayed_graph(replayed_graph const&) = delete;
  replayed_graph& operator=(replayed_graph const&) = delete;
  ~replayed_graph() { static_cast<void>(cudaGraphExecDestroy(replay_)); }

  void start() const { require(cudaGraphLaunch(replay_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t replay_ = nullptr;
};

TEST(graphs_of_ranks, replays_go_on_where_the_calls_before_them_ended) {
  for (bool one_gpu : {true, false}) {
    int const size = one_gpu ? 4 : std::min(4, test_gpu_count());
    if (size < 2) continue;  // there is one GPU
    SCOPED_TRACE(one_gpu ? "one GPU" : "a GPU each");
    auto const devices = open_ranks(size, one_gpu);
    parallel::rank_team team(parallel::make_device_group(devices, {4, 64}));
    std::vector<std::unique_ptr<ops::cuda::device::mark>> marks;
    for (auto const& one : devices) marks.push_back(one->make_mark());
    std::barrier all(size);
    auto const meet = [&all] { all.arrive_and_wait(); };
    team.run([&](int rank) {
      ops::cuda::device& own = *devices[static_cast<std::size_t>(rank)];
      parallel::communicator& end = *team.end(rank);
      auto const stream = static_cast<cudaStream_t>(own.stream());
      EXPECT_EQ(end.can_capture(), !one_gpu);
      device_rows partial(own, qpn::dtype::f32, 2, 40);
      device_rows x(own, qpn::dtype::f32, 2, 40);
      partial.write(std::vector<float>(80, static_cast<float>(rank + 1)));
      end.sum_into(partial.view(), x.view());
      own.wait();
      meet();
      // One capture for all streams of a GPU, which rank 0 begins and ends.
      bool const captures = !one_gpu || rank == 0;
      if (captures) require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
      if (one_gpu && rank == 0) own.record(*marks[0]);
      meet();
      if (!captures) own.wait_for(*marks[0]);
      for (int call = 0; call < calls; ++call) end.sum_into(partial.view(), x.view());
      if (!captures) own.record(*marks[static_cast<std::size_t>(rank)]);
      meet();
      for (int other = 1; one_gpu && rank == 0 && other < size; ++other) {
        own.wait_for(*marks[static_cast<std::size_t>(other)]);
      }
      std::unique_ptr<replayed_graph> graph;
      if (captures) graph = std::make_unique<replayed_graph>(stream);
      meet();
      for (int replay = 0; graph && replay < replays; ++replay) graph->start();
      if (graph) own.wait();
      meet();
      float const sum = static_cast<float>(size * (size + 1) / 2);
      EXPECT_EQ(x.read(), std::vector<float>(80, sum * (1 + calls * replays))) << "rank " << rank;
      end.sum_into(partial.view(), x.view());
      EXPECT_EQ(x.read(), std::vector<float>(80, sum * (2 + calls * replays))) << "rank " << rank;
      end.check();
    });
  }
}

}  // namespace
}  // namespace qwen38::test

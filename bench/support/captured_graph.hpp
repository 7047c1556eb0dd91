// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "gpu/device_memory.hpp"

namespace qpn::bench {

/// A graph of what `record` launches on the stream. Throws std::runtime_error where CUDA refuses.
class captured_graph {
 public:
  template <class Record>
  captured_graph(cudaStream_t stream, Record&& record) : stream_(stream) {
    test::require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    cudaGraph_t graph = nullptr;
    test::require(cudaStreamEndCapture(stream, &graph));
    cudaError_t const made = cudaGraphInstantiateWithFlags(&replay_, graph, 0);
    cudaGraphDestroy(graph);
    test::require(made);
    test::require(cudaEventCreate(&begin_));
    test::require(cudaEventCreate(&end_));
  }
  ~captured_graph() {
    cudaGraphExecDestroy(replay_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  captured_graph(captured_graph const&) = delete;
  captured_graph& operator=(captured_graph const&) = delete;

  /// Starts a replay and returns.
  void start() const { test::require(cudaGraphLaunch(replay_, stream_)); }

  /// Microseconds of one replay between two events on the stream; waits for it.
  [[nodiscard]] double timed_replay() const {
    test::require(cudaEventRecord(begin_, stream_));
    start();
    test::require(cudaEventRecord(end_, stream_));
    test::require(cudaEventSynchronize(end_));
    float milliseconds = 0.0F;
    test::require(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t replay_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace qpn::bench

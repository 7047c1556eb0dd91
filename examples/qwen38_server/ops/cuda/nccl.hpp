// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// One rank's end of the collective operations of a library, in the stream of its device: in the
/// order of its other work, without waiting for it. All ranks make the same calls with the same
/// counts, each from a thread of its own. Everything but abort() throws qwen38::error (internal).
class collectives {
 public:
  virtual ~collectives() = default;
  /// all[r * count + i] = rank r's own[i], 4 bytes each, on every rank.
  virtual void all_gather(void const* own, void* all, std::int64_t count) = 0;
  /// The same on rank 0 alone; `all` of others is not looked at.
  virtual void gather_to_first(void const* own, void* all, std::int64_t count) = 0;
  /// values[i] = the sum over the ranks, in whatever order the library takes.
  virtual void all_reduce(float* values, std::int64_t count) = 0;
  /// Throws what the library knows to have gone wrong in work so far.
  virtual void check() = 0;
  /// Ends the rank's work that waits for others, and all later calls; from any thread.
  virtual void abort() noexcept = 0;
};

/// NCCL's, in rank order; each rank has a GPU of its own. The library is looked for when this is
/// called. Throws qwen38::error (unavailable) where it is not found, or this program was built
/// without its header.
[[nodiscard]] std::vector<std::shared_ptr<collectives>> open_nccl(
    std::vector<std::shared_ptr<device>> const& devices);

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/device.hpp"
#include "parallel/communicator.hpp"

namespace qwen38::parallel {

struct device_group_options {
  std::int64_t max_rows = 96;  ///< of a call
  std::int64_t max_cols = 0;   ///< of a sum
  /// How long a rank's kernel waits for another rank before the group fails.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
};

/// The ends, in rank order, of a group whose ranks are threads of this process with a device each,
/// on which their backends run. Sums take one kernel (ops/cuda/peer_reduce.hpp).
///
/// Devices of different GPUs: each rank launches its own kernel, stores into the others' memory and
/// waits for theirs on the GPU; calls wait for no thread, but for gather_columns(), which exchanges
/// addresses. Devices of one GPU: rank 0 launches one grid for all ranks, whose streams are joined
/// by events; the threads meet in every call. What such devices capture, as long as the ends are
/// there, goes into one graph (device::capture_jointly()).
///
/// Throws qwen38::error: invalid_argument where some devices share a GPU and others do not, or
/// there are more than max_peers; unavailable where GPUs cannot reach each other's memory.
[[nodiscard]] std::vector<std::shared_ptr<communicator>> make_device_group(
    std::vector<std::shared_ptr<ops::cuda::device>> devices, device_group_options const& options);

}  // namespace qwen38::parallel

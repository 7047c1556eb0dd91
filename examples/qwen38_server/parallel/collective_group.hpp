// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/nccl.hpp"
#include "parallel/communicator.hpp"

namespace qwen38::parallel {

/// How the ranks' terms are added.
enum class sum_order : std::uint8_t {
  by_rank,  ///< all terms are gathered, and added in rank order
  /// By the library's all-reduce, in an order of its own: a row's bits may depend on the rows
  /// beside it, so that texts may depend on speculation and batching.
  any,
};

struct collective_group_options {
  std::int64_t max_rows = 96;  ///< of a call
  std::int64_t max_cols = 0;   ///< of a sum
  sum_order order = sum_order::by_rank;
};

/// The ends, in rank order, of a group whose ranks are threads of this process with a device each
/// and exchange data by a library's collectives. Calls wait for no thread. gather_columns() grows
/// its memory where a call is wider than all before, which waits for the device.
[[nodiscard]] std::vector<std::shared_ptr<communicator>> make_collective_group(
    std::vector<std::shared_ptr<ops::cuda::device>> const& devices,
    std::vector<std::shared_ptr<ops::cuda::collectives>> const& ends,
    collective_group_options const& options);

}  // namespace qwen38::parallel

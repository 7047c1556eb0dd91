// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/inventory.hpp"
#include "parallel/shard.hpp"

namespace qwen38::parallel {

/// Bytes of the published tensors that a rank reads: of cut tensors those of its slice, and all of
/// the others. Blocks of scales that a border crosses count on both sides.
[[nodiscard]] checkpoint::group_bytes bytes_of_rank(checkpoint::inventory const& weights,
                                                    checkpoint::model_config const& config,
                                                    shard_plan const& plan, int rank);

}  // namespace qwen38::parallel

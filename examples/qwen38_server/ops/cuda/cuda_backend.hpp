// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "ops/backend.hpp"
#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

struct cuda_options {
  /// Partial sums (of one query and partition) that the attention of a pass may keep; beyond, rows
  /// are served in several launches, or each CTA folds all partitions of its queries. No bit
  /// depends on it.
  std::int64_t attention_sums = 65536;
  /// Attention on tensor cores where the GPU has m16n8k16 and enough shared memory.
  bool attention_tiles = true;
  /// Gated DeltaNet of a pass of short spans in one launch. No bit depends on it.
  bool gdn_in_one_launch = true;
};

/// The backend on one GPU, in one stream. Activations are fp16, all else as on the CPU; products
/// take qpn's packed routes, other operations this folder's kernels. Calls return before their work
/// is done, except read(). One caller at a time.
///
/// A row's bits depend neither on the rows beside it nor on how the tokens before it were cut into
/// passes, prompts at multiples of 64 (ops/backend.hpp); from GPU to GPU and from the CPU's they
/// may differ in the last places.
std::unique_ptr<backend> make_backend(std::shared_ptr<device> gpu,
                                      cuda_options const& options = {});

}  // namespace qwen38::ops::cuda

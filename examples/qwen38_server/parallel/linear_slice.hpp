// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <qpn/prepack.hpp>
#include <vector>

#include "checkpoint/linear.hpp"
#include "parallel/shard.hpp"

namespace qwen38::parallel {

/// One rank's slice of a linear in the terms of qpn's prepack: one part per range of rows, or two
/// where a range begins inside a 128x128 block of scales. The
/// parts point into the linear, which must outlive this, unless columns are cut: those lie in
/// memory of its own, which moves keep.
struct linear_slice {
  std::int64_t k = 0;
  std::vector<qpn::weight_part> parts;
  std::unique_ptr<std::byte[]> own_codes;
  std::unique_ptr<std::byte[]> own_block_scales;
  std::vector<float> own_scale_blocks;
};

/// @throws qwen38::error: internal if NVFP4 columns are cut inside a group of 16; unsupported if
/// FP8 columns are cut inside a 128x128 block of scales.
[[nodiscard]] linear_slice slice_linear(checkpoint::linear_view const& linear,
                                        tensor_slice const& slice);

}  // namespace qwen38::parallel

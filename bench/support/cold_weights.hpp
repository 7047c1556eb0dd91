// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>

#include "gpu/device_memory.hpp"
#include "support/machine.hpp"
#include "support/model_shapes.hpp"
#include "support/read_ceiling.hpp"

namespace qpn::bench {

/// The layout that the library chooses for a shape on a device. Throws std::runtime_error with the
/// library's words.
[[nodiscard]] packed_layout layout_of(model_shape const& shape, device_info const& device);

/// Copies of a weight with random codes and block scales, all different, packed on the device. The
/// fp32 scale makes y about `gain` times as large as x.
class cold_weights {
 public:
  /// @param copies  1 or more
  /// @param seed    weights of another seed have other contents
  cold_weights(model_shape const& shape, std::int64_t copies, std::uint64_t seed,
               machine const& gpu, float gain = 1.0F);

  [[nodiscard]] packed_layout const& layout() const { return layout_; }
  [[nodiscard]] std::int64_t copies() const { return copies_; }
  /// 0 <= copy < copies
  [[nodiscard]] packed_weight copy(std::int64_t copy) const {
    return {layout_, memory_.data() + static_cast<std::size_t>(copy) * stride_};
  }
  /// All of them, to be read and nothing else.
  [[nodiscard]] rotated_memory bytes() const {
    return {memory_.data(), static_cast<std::size_t>(layout_.total_bytes), stride_, copies_};
  }
  /// The last copy as published, in device memory.
  [[nodiscard]] weight_part const& last_published() const { return published_; }

 private:
  template <class Format>
  void pack_all(std::uint64_t seed, machine const& gpu);

  packed_layout layout_;
  std::int64_t copies_;
  std::size_t stride_;
  test::device_memory memory_;
  test::device_memory codes_;
  test::device_memory block_scales_;
  weight_part published_;
};

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <qpn/packed_weight.hpp>
#include <span>

#include "checkpoint/linear.hpp"

namespace qwen38::checkpoint {

/// A packed weight that owns its bytes, which are aligned to 64. Moving keeps their address.
class packed_matrix {
 public:
  [[nodiscard]] qpn::packed_weight const& weight() const noexcept { return weight_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(weight_.layout.total_bytes);
  }

 private:
  friend packed_matrix pack(std::span<linear_view const> linears);
  struct aligned_delete {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte[], aligned_delete> memory_;
  qpn::packed_weight weight_;
};

/// Packs one or several linears of the same inputs into one matrix, their outputs one after the
/// other. Every part keeps its own scale: one fp32 per 32-row tile where all borders between parts
/// lie on multiples of 32 rows, else one per row. The linears must be of one quantisation class.
/// @throws qwen38::error: invalid_argument for no parts, different k, or parts without bytes
/// (headers only); unsupported for different classes, naming both; corrupt_data with the module,
/// row and column of a NaN.
[[nodiscard]] packed_matrix pack(std::span<linear_view const> linears);

}  // namespace qwen38::checkpoint

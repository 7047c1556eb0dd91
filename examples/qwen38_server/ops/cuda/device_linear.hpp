// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "ops/backend.hpp"
#include "ops/cuda/memory.hpp"

namespace qwen38::ops::cuda {

/// The workspace that all products of a stream share, one after another.
class shared_workspace {
 public:
  /// Room for one more plan; before the first product.
  void add(linear_plan const& plan);
  /// Allocates, at the first call after add(), what the plans need.
  [[nodiscard]] qpn::workspace_view get(device& owner, linear_plan const& plan);

 private:
  qpn::workspace_needs needs_;
  device_block memory_;
};

/// A weight packed on the device, and the plan of its products.
class device_linear final : public linear {
 public:
  /// Uploads the parts piece by piece through `staging` and packs them there.
  device_linear(device& owner, linear_source const& source, scratch_block& staging);

  [[nodiscard]] std::int64_t n() const noexcept override { return weight_.layout.n; }
  [[nodiscard]] std::int64_t k() const noexcept override { return weight_.layout.k; }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override { return memory_.bytes(); }
  [[nodiscard]] qpn::packed_layout const& layout() const noexcept override {
    return weight_.layout;
  }
  /// The first ones that a product reads.
  [[nodiscard]] byte_range first_bytes(std::size_t most) const noexcept;
  /// Takes room for the products in the workspace.
  void add_to(shared_workspace& workspace) const;

  /// y = x W^T, y += x W^T, or silu(gate) * up, as the plan has it. More rows than
  /// linear_source::most_rows take several launches.
  /// @param beside  the launch before is a product of the same x: gemm_args::beside_previous
  /// Whether x of so many rows may be in the order of qpn/x_fragments.hpp.
  [[nodiscard]] bool takes_fragments(std::int64_t rows) const;
  void multiply(device& owner, shared_workspace& workspace, tensor const& x, tensor const& y,
                bool accumulate, bool beside, qpn::gemm_census& census) const;

  /// The best id of each row, by a plan with one candidate; made for linear_use::head.
  struct best_rows {
    std::int32_t* ids = nullptr;
    float* values = nullptr;
    std::int32_t first_id = 0;
    std::int32_t end_id = 0;
  };
  void choose(device& owner, shared_workspace& workspace, tensor const& x, best_rows const& best,
              qpn::gemm_census& census) const;

 private:
  device_block memory_;
  qpn::packed_weight weight_;
  linear_plan plan_;
  std::optional<linear_plan> best_plan_;
  linear_use use_;
};

}  // namespace qwen38::ops::cuda

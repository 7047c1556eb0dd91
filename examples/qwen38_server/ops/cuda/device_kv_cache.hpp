// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "ops/backend.hpp"
#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/device_pass.hpp"
#include "ops/cuda/memory.hpp"

namespace qwen38::ops::cuda {

/// Keys and values, and the scratch of the attention over them.
class device_kv_cache final : public kv_cache {
 public:
  device_kv_cache(device& owner, attention_shape const& shape, std::int64_t layers,
                  std::int64_t pages, cuda_options const& options);
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return keys_.bytes() + values_.bytes();
  }

  /// "cuda/m16n8k16", or "cuda/fp32" where the GPU lacks that instruction or the shared memory.
  [[nodiscard]] char const* route() const noexcept {
    return has_tiles_ ? "cuda/m16n8k16" : "cuda/fp32";
  }

  void store(std::int64_t layer, device_pass const& p, tensor const& kv, float const* k_norm);
  void attend(std::int64_t layer, device_pass const& p, tensor const& q_gate, float const* q_norm,
              output_rows const& out) const;
  /// One after the other, with a launch less where queries have one of their own.
  void store_and_attend(std::int64_t layer, device_pass const& p, tensor const& kv,
                        float const* k_norm, tensor const& q_gate, float const* q_norm,
                        output_rows const& out);

 private:
  [[nodiscard]] store_kv_params storing(std::int64_t layer, device_pass const& p, tensor const& kv,
                                        float const* k_norm);
  void attend_after(std::optional<store_kv_params> const& store, std::int64_t layer,
                    device_pass const& p, tensor const& q_gate, float const* q_norm,
                    output_rows const& out) const;
  [[nodiscard]] rope_params rope(float const* norm) const;
  [[nodiscard]] attention_sums place_sums(device_pass const& p) const;

  device& owner_;
  attention_shape shape_;
  std::int64_t pages_;      ///< that callers have
  std::int64_t most_sums_;  ///< as cuda_options::attention_sums
  std::int64_t layer_values_;
  bool has_tiles_;  ///< the GPU has what the tensor core kernels need
  device_block keys_;
  device_block values_;
  device_block frequencies_;  ///< f64 [rotary_dim / 2]
  mutable scratch_block queries_;
  mutable scratch_block numerators_;
  mutable scratch_block sums_;
};

}  // namespace qwen38::ops::cuda

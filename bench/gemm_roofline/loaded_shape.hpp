// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "gemm_roofline/dense_gemm.hpp"
#include "gemm_roofline/options.hpp"
#include "support/cold_weights.hpp"
#include "support/gemm_launches.hpp"
#include "support/machine.hpp"

namespace qpn::bench::roofline {

/// The cold weights of one shape, packed and, where somebody else's GEMM takes part, in f16; and
/// how long it takes to read the packed ones.
class loaded_shape {
 public:
  /// @param with_dense  whether the weights are needed in f16, too
  loaded_shape(model_shape const& shape, options const& chosen, bool with_dense,
               machine const& gpu);

  [[nodiscard]] model_shape const& shape() const { return shape_; }
  [[nodiscard]] cold_weights const& weights() const { return weights_; }
  [[nodiscard]] double read_us() const { return read_us_; }

  /// Launches of a graph of qpn::gemm; the last one is on the last copy.
  [[nodiscard]] std::int64_t launches() const;
  [[nodiscard]] std::int64_t dense_launches() const;
  void launch_all(dense_gemm& gemm, activations const& with) const;

 private:
  void dequantize_all(machine const& gpu);

  model_shape shape_;
  std::int64_t least_launches_;
  cold_weights weights_;
  std::int64_t dense_copies_;
  std::optional<test::device_memory> dense_;
  double read_us_;
};

}  // namespace qpn::bench::roofline

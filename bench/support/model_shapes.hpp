// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/format.hpp>
#include <span>
#include <string_view>

namespace qpn::bench {

/// A weight [n, k] of one rank of Qwen3.8-27B.
struct model_shape {
  std::string_view name;  ///< "tp4.gate_up"
  int tp;                 ///< ranks that share the model
  format_id format;
  std::int64_t n;
  std::int64_t k;
};

/// All of them, at TP1 and TP4.
[[nodiscard]] std::span<model_shape const> model_shapes();

/// Throws std::invalid_argument, with all names, where there is none of this name.
[[nodiscard]] model_shape const& shape_named(std::string_view name);

/// Bytes as published: codes and block scales.
[[nodiscard]] constexpr std::int64_t published_bytes(model_shape const& shape) {
  std::int64_t const weights = shape.n * shape.k;
  return shape.format == format_id::nvfp4 ? weights / 2 + weights / nvfp4::group_k : weights;
}

}  // namespace qpn::bench

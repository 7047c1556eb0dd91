// SPDX-License-Identifier: Apache-2.0
#include "support/model_shapes.hpp"

#include <stdexcept>
#include <string>

namespace qpn::bench {

namespace {

constexpr model_shape shapes[] = {
    {"tp1.gate_up", 1, format_id::nvfp4, 34816, 5120},
    {"tp1.down", 1, format_id::nvfp4, 5120, 17408},
    {"tp1.lm_head", 1, format_id::nvfp4, 248320, 5120},
    {"tp1.gdn_in", 1, format_id::fp8, 16384, 5120},
    {"tp1.gdn_out", 1, format_id::fp8, 5120, 6144},
    {"tp1.attn_qkv", 1, format_id::fp8, 14336, 5120},
    {"tp1.attn_o", 1, format_id::fp8, 5120, 6144},
    {"tp4.gate_up", 4, format_id::nvfp4, 8704, 5120},
    {"tp4.down", 4, format_id::nvfp4, 5120, 4352},
    {"tp4.lm_head", 4, format_id::nvfp4, 62080, 5120},
    {"tp4.gdn_in", 4, format_id::fp8, 4096, 5120},
    {"tp4.gdn_out", 4, format_id::fp8, 5120, 1536},
    {"tp4.attn_qkv", 4, format_id::fp8, 3584, 5120},
    {"tp4.attn_o", 4, format_id::fp8, 5120, 1536},
};

}  // namespace

std::span<model_shape const> model_shapes() {
  return shapes;
}

model_shape const& shape_named(std::string_view name) {
  std::string known;
  for (model_shape const& shape : shapes) {
    if (shape.name == name) return shape;
    if (!known.empty()) known += ", ";
    known += shape.name;
  }
  throw std::invalid_argument("no shape is called " + std::string(name) + ", expected one of " +
                              known);
}

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.hpp"
#include "checkpoint/diagnostics.hpp"
#include "checkpoint/linear.hpp"
#include "checkpoint/quantization_config.hpp"
#include "checkpoint/repository.hpp"

namespace qwen38::checkpoint {

/// What a tensor is for. The first six and mtp hold numbers of the model; one-element scales of
/// quantised linears, activation and cache scales count as scalars wherever they belong.
enum class weight_group : std::uint8_t {
  mlp,
  head,
  attention,  ///< q, k, v, o projections
  gdn,        ///< in_proj_qkv, in_proj_z, out_proj
  embedding,
  gdn_gates,  ///< in_proj_a, in_proj_b
  small,      ///< norms, convolution, A_log, dt_bias
  mtp,
  vision,  ///< ignored
  scalars,
  unaccounted,  ///< neither used nor ignored: an error
};
inline constexpr std::size_t weight_group_count = 11;

[[nodiscard]] std::string_view to_string(weight_group group) noexcept;

/// One thing the model looks up: a linear layer, by its module's name, or a single tensor by its
/// own.
struct model_entry {
  std::string name;
  weight_group group;
  bool is_linear;
  std::vector<std::int64_t> shape;  ///< linear: [n, k]
};

/// Everything a model of that shape uses, under the published names. `prefix` as from
/// text_prefix().
[[nodiscard]] std::vector<model_entry> list_model(model_config const& config,
                                                  std::string const& prefix);

using group_bytes = std::array<std::uint64_t, weight_group_count>;  ///< by weight_group

struct weight_total {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

/// A tensor that an entry of the model uses.
struct used_tensor {
  std::string name;
  std::size_t entry;  ///< index in list_model()
  weight_group group;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes;
};

struct inventory {
  std::string prefix;
  std::vector<used_tensor> used;                        ///< in the order of list_model()
  std::array<weight_total, weight_group_count> groups;  ///< tensors, by weight_group
  weight_total all;                                     ///< tensors
  std::vector<stored_linear> linears;                   ///< all of the model
  std::array<weight_total, quant_class_count>
      classes;  ///< linear modules by quant_class, with the bytes of all their tensors

  [[nodiscard]] weight_total const& of(weight_group group) const {
    return groups[static_cast<std::size_t>(group)];
  }
  [[nodiscard]] weight_total const& of(quant_class cls) const {
    return classes[static_cast<std::size_t>(cls)];
  }
};

/// Looks up everything the model uses, claims it, and counts what is there. Each linear or tensor
/// that is wrong is a sentence to `report`; what is missing and what is left over are one sentence
/// each, with a count and the first names.
[[nodiscard]] inventory take_inventory(repository& tensors, model_config const& config,
                                       diagnostics& report);

}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/diagnostics.hpp"
#include "checkpoint/linear.hpp"

namespace qwen38::checkpoint {

/// What a checkpoint's JSON says about the storage of its linear layers. It is only compared with
/// the tensors, which decide: exporters have shipped metadata of another revision than the weights.
struct quantization_declaration {
  std::string source;  ///< for messages, e.g. "config.json: quantization_config"
  std::string
      default_algo;  ///< quant_algo: "NVFP4", "FP8", "MIXED_PRECISION", ...; "" if there is none
  std::string kv_cache_algo;                  ///< "" if none is declared
  std::map<std::string, std::string> layers;  ///< quantized_layers: module name -> quant_algo
  std::vector<std::string> excluded;          ///< module names that may hold '*'

  /// The algorithm declared for `module`, "" for a module that stays dense; nothing where the
  /// document does not say. Names are compared without the prefix of the language model, which
  /// exporters spell differently.
  [[nodiscard]] std::optional<std::string> algo_of(std::string_view module) const;
};

/// Reads ModelOpt's hf_quant_config.json: {"quantization": {...}}.
[[nodiscard]] quantization_declaration parse_hf_quant_config(nlohmann::json const& document,
                                                             std::string const& label,
                                                             diagnostics& report);

/// Reads quantization_config of config.json's document, or nothing if there is none.
[[nodiscard]] std::optional<quantization_declaration> parse_quantization_config(
    nlohmann::json const& document, std::string const& label, diagnostics& report);

/// True if `name` matches `pattern`, in which each '*' stands for any text.
[[nodiscard]] bool matches_wildcard(std::string_view pattern, std::string_view name) noexcept;

/// A linear layer of the model as the tensors store it.
struct stored_linear {
  std::string module;
  std::optional<quant_class> cls;  ///< empty: missing or refused, which is an error of its own
};

/// Compares a declaration with what is stored. Each kind of contradiction is one warning that
/// counts the modules and names the first few; the tensors win. Modules that are declared but not
/// stored count too.
void compare_declaration(quantization_declaration const& declared,
                         std::vector<stored_linear> const& stored, diagnostics& report);

}  // namespace qwen38::checkpoint

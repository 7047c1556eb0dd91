// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/diagnostics.hpp"
#include "checkpoint/linear.hpp"

namespace qwen38::checkpoint {

/// Which modules an entry of such a document means. Names are compared in each spelling of the
/// language model's prefix, since exporters differ in it.
class module_pattern {
 public:
  enum class syntax {
    wildcard,  ///< ModelOpt: '*' stands for any text
    target,    ///< compressed-tensors: a whole name, or "re:" and a pattern that Python's re.match
               ///< takes; a class name is another matter, see is_class()
    part,      ///< quant_method "fp8": a whole name, or its first or last components
  };
  /// @throws qwen38::error (unsupported) for a pattern that is not one of ECMAScript's, or too long
  module_pattern(std::string_view text, syntax s);

  [[nodiscard]] bool matches(std::string_view module) const;
  /// A target that names the class of all linear layers.
  [[nodiscard]] bool is_class() const { return syntax_ == syntax::target && text_ == "Linear"; }

 private:
  std::string text_;  // without the prefix of the language model
  syntax syntax_;
  std::optional<std::regex> regex_;
};

/// What a checkpoint's JSON says about the storage of its linear layers. It is only compared with
/// the tensors, which decide how they are read.
struct quantization_declaration {
  std::string source;  ///< for messages, e.g. "config.json: quantization_config"
  std::string
      default_algo;  ///< quant_algo: "NVFP4", "FP8", "MIXED_PRECISION", ...; "" if there is none
  std::string kv_cache_algo;                  ///< "" if none is declared
  std::map<std::string, std::string> layers;  ///< quantized_layers: module name -> quant_algo
  std::vector<module_pattern> excluded;

  /// One entry of compressed-tensors' config_groups.
  struct group {
    std::string algo;
    std::vector<module_pattern> targets;
  };
  std::vector<group> groups;

  /// The algorithms declared for `module`, "" for a module that stays dense; none where the
  /// document does not say. Only groups can give several: exporters write overlapping patterns, and
  /// libraries differ in which of them wins. Whole names and patterns go before class names.
  [[nodiscard]] std::vector<std::string> algos_of(std::string_view module) const;
};

/// Reads ModelOpt's hf_quant_config.json: {"quantization": {...}}.
[[nodiscard]] quantization_declaration parse_hf_quant_config(nlohmann::json const& document,
                                                             std::string const& label,
                                                             diagnostics& report);

/// Reads quantization_config of config.json's document, or nothing if there is none: that of
/// quant_method "modelopt" (also assumed if there is none), "compressed-tensors" or "fp8".
[[nodiscard]] std::optional<quantization_declaration> parse_quantization_config(
    nlohmann::json const& document, std::string const& label, diagnostics& report);

/// True if `name` matches `pattern`, in which each '*' stands for any text.
[[nodiscard]] bool matches_wildcard(std::string_view pattern, std::string_view name) noexcept;

/// A linear layer of the model as the tensors store it.
struct stored_linear {
  std::string module;
  std::optional<quant_class> cls;  ///< empty: missing or refused, which is an error of its own
};

/// Both documents of a checkpoint directory, if they are there; `config` is config.json's.
[[nodiscard]] std::vector<quantization_declaration> read_declarations(
    std::filesystem::path const& directory, nlohmann::json const& config, diagnostics& report);

/// Compares a declaration with what is stored. Each kind of contradiction is one sentence that
/// counts the modules and names the first few. It is an error, except for linears that are stored
/// in 16 bits, which cannot be misread: published checkpoints have shipped with the metadata of a
/// sibling whose head was quantised. Modules that are declared but not stored are a warning.
void compare_declaration(quantization_declaration const& declared,
                         std::vector<stored_linear> const& stored, diagnostics& report);

}  // namespace qwen38::checkpoint

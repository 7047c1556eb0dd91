// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantization_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "checkpoint/json_fields.hpp"
#include "checkpoint/message_text.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

std::string_view without_prefix(std::string_view module) {
  constexpr std::array<std::string_view, 3> prefixes = {"model.language_model.",
                                                        "language_model.model.", "model."};
  for (std::string_view const prefix : prefixes) {
    if (module.starts_with(prefix)) return module.substr(prefix.size());
  }
  return module;
}

// The storage that an algorithm's name means, as to_string(quant_class) gives it; "16 bit" for
// none.
std::string_view storage_of(std::string_view algo) {
  if (algo.empty()) return "16 bit";
  if (algo == "NVFP4" || algo == "W4A16_NVFP4") return "nvfp4";
  if (algo == "FP8") return "fp8_tensor";
  return "unknown";
}

std::string_view storage_of(quant_class cls) {
  return cls == quant_class::bf16 || cls == quant_class::f16 ? "16 bit" : to_string(cls);
}

void read_layers(json_fields const& fields, quantization_declaration& declared) {
  std::optional<json_fields> const layers = fields.optional_object("quantized_layers");
  if (!layers) return;
  for (auto const& [module, entry] : fields.find("quantized_layers")->items()) {
    std::optional<json_fields> const layer = layers->optional_object(module);
    std::optional<std::string> const algo =
        layer ? layer->optional_text("quant_algo") : std::nullopt;
    if (layer && !algo) layer->fail_missing("quant_algo", "a string");
    if (algo) declared.layers.emplace(without_prefix(module), *algo);
  }
}

void read_excluded(json_fields const& fields, std::string_view key,
                   quantization_declaration& declared) {
  json const* const list = fields.find(key);
  if (list == nullptr) return;
  bool const texts =
      list->is_array() &&
      std::all_of(list->begin(), list->end(), [](json const& name) { return name.is_string(); });
  if (!texts) {
    fields.fail(error_kind::corrupt_data, key, "is not a list of module names");
    return;
  }
  for (json const& name : *list) {
    declared.excluded.emplace_back(without_prefix(name.get_ref<std::string const&>()));
  }
}

}  // namespace

std::optional<std::string> quantization_declaration::algo_of(std::string_view module) const {
  std::string_view const name = without_prefix(module);
  auto const layer = layers.find(std::string(name));
  if (layer != layers.end()) return layer->second;
  bool const is_excluded =
      std::any_of(excluded.begin(), excluded.end(),
                  [&](std::string const& pattern) { return matches_wildcard(pattern, name); });
  if (is_excluded || !layers.empty()) return "";
  if (default_algo.empty() || default_algo == "MIXED_PRECISION") return std::nullopt;
  return default_algo;
}

quantization_declaration parse_hf_quant_config(json const& document, std::string const& label,
                                               diagnostics& report) {
  quantization_declaration declared;
  declared.source = label;
  json_fields const top(document, label, "", report);
  std::optional<json_fields> const fields = top.optional_object("quantization");
  if (!fields) {
    if (!top.has("quantization")) top.fail_missing("quantization", "an object");
    return declared;
  }
  declared.default_algo = fields->optional_text("quant_algo").value_or("");
  declared.kv_cache_algo = fields->optional_text("kv_cache_quant_algo").value_or("");
  read_layers(*fields, declared);
  read_excluded(*fields, "exclude_modules", declared);
  return declared;
}

std::optional<quantization_declaration> parse_quantization_config(json const& document,
                                                                  std::string const& label,
                                                                  diagnostics& report) {
  json_fields const top(document, label, "", report);
  std::optional<json_fields> const fields = top.optional_object("quantization_config");
  if (!fields) return std::nullopt;
  quantization_declaration declared;
  declared.source = top.where("quantization_config");
  declared.default_algo = fields->optional_text("quant_algo").value_or("");
  if (std::optional<json_fields> const scheme = fields->optional_object("kv_cache_scheme")) {
    std::int64_t const bits = scheme->optional_integer("num_bits", 1, 32).value_or(0);
    bool const is_float = scheme->optional_text("type").value_or("") == "float";
    declared.kv_cache_algo = bits == 8 && is_float ? "FP8" : std::to_string(bits) + " bit";
  }
  read_layers(*fields, declared);
  read_excluded(*fields, "ignore", declared);
  return declared;
}

bool matches_wildcard(std::string_view pattern, std::string_view name) noexcept {
  // Greedy with one point of return, the latest '*': linear in practice and never exponential.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void compare_declaration(quantization_declaration const& declared,
                         std::vector<stored_linear> const& stored, diagnostics& report) {
  std::map<std::pair<std::string, std::string_view>, std::vector<std::string>> contradictions;
  std::set<std::string_view> names;
  for (stored_linear const& linear : stored) {
    names.insert(without_prefix(linear.module));
    std::optional<std::string> const algo = declared.algo_of(linear.module);
    if (!algo || !linear.cls || storage_of(*algo) == storage_of(*linear.cls)) continue;
    contradictions[{*algo, to_string(*linear.cls)}].push_back(linear.module);
  }
  for (auto const& [kinds, modules] : contradictions) {
    std::string const says = kinds.first.empty() ? "no quantisation" : in_quotes(kinds.first);
    report.warn(declared.source + " declares " + says + " for " + std::to_string(modules.size()) +
                " linears that are stored as " + std::string(kinds.second) +
                ", and the tensors decide: " + first_few(modules));
  }
  std::vector<std::string> unknown;
  for (auto const& [module, algo] : declared.layers) {
    if (!names.contains(module)) unknown.push_back(module);
  }
  if (!unknown.empty()) {
    report.warn(declared.source + " declares a quantisation for " + std::to_string(unknown.size()) +
                " modules that are not linears of this model: " + first_few(unknown));
  }
}

}  // namespace qwen38::checkpoint

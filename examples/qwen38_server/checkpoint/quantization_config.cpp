// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantization_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "checkpoint/json_fields.hpp"
#include "checkpoint/json_file.hpp"
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

// One algorithm's name under each spelling and the storage it means, as to_string(quant_class)
// gives it; "16 bit" for none.
constexpr char const* fp8_channel_algo = "FP8_PER_CHANNEL_PER_TOKEN";
constexpr char const* fp8_block_algo = "FP8_PB_WO";

std::string_view storage_of(std::string_view algo) {
  if (algo.empty()) return "16 bit";
  if (algo == "NVFP4" || algo == "W4A16_NVFP4") return "nvfp4";
  if (algo == "FP8") return "fp8_tensor";
  if (algo == fp8_channel_algo) return "fp8_channel";
  if (algo == fp8_block_algo) return "fp8_block";
  return "unknown";
}

std::string_view storage_of(quant_class cls) {
  return cls == quant_class::bf16 || cls == quant_class::f16 ? "16 bit" : to_string(cls);
}

void require_group_of_16(json_fields const& fields, std::string_view algo) {
  if (storage_of(algo) != "nvfp4") return;
  std::optional<std::int64_t> const size = fields.optional_integer("group_size", 1, 1 << 20);
  if (size && *size != 16) fields.fail_value("group_size", *size, "16");
}

void read_layers(json_fields const& fields, quantization_declaration& declared) {
  std::optional<json_fields> const layers = fields.optional_object("quantized_layers");
  if (!layers) return;
  for (auto const& [module, entry] : fields.find("quantized_layers")->items()) {
    std::optional<json_fields> const layer = layers->optional_object(module);
    std::optional<std::string> const algo =
        layer ? layer->optional_text("quant_algo") : std::nullopt;
    if (layer && !algo) layer->fail_missing("quant_algo", "a string");
    if (!algo) continue;
    require_group_of_16(*layer, *algo);
    declared.layers.emplace(without_prefix(module), *algo);
  }
}

std::vector<module_pattern> read_patterns(json_fields const& fields, std::string_view key,
                                          module_pattern::syntax syntax) {
  std::vector<module_pattern> patterns;
  json const* const list = fields.find(key);
  if (list == nullptr) return patterns;
  bool const texts =
      list->is_array() &&
      std::all_of(list->begin(), list->end(), [](json const& name) { return name.is_string(); });
  if (!texts) {
    fields.fail(error_kind::corrupt_data, key, "is not a list of module names");
    return patterns;
  }
  for (json const& name : *list) {
    try {
      patterns.emplace_back(name.get_ref<std::string const&>(), syntax);
    } catch (error const& failure) {
      fields.fail(failure.kind(), key, failure.what());
    }
  }
  return patterns;
}

void require_block_of_128(json_fields const& fields, std::string_view key) {
  json const* const size = fields.find(key);
  if (size != nullptr && *size != json{128, 128}) fields.fail_value(key, *size, "[128,128]");
}

// What the weights of a group of compressed-tensors are, in ModelOpt's names.
std::string read_weights(json_fields const& weights) {
  std::int64_t const bits = weights.integer("num_bits", 1, 64);
  std::string const type = weights.optional_text("type").value_or("int");
  std::string const strategy = weights.optional_text("strategy").value_or("tensor");
  if (type != "float" || (bits != 4 && bits != 8)) return std::to_string(bits) + " bit " + type;
  if (bits == 4) {
    require_group_of_16(weights, "NVFP4");
    return "NVFP4";
  }
  if (strategy == "tensor") return "FP8";
  if (strategy == "channel") return fp8_channel_algo;
  if (strategy != "block") return "8 bit float by " + strategy;
  require_block_of_128(weights, "block_structure");
  return fp8_block_algo;
}

void read_groups(json_fields const& fields, quantization_declaration& declared) {
  std::optional<json_fields> const groups = fields.optional_object("config_groups");
  if (!groups) {
    if (!fields.has("config_groups")) fields.fail_missing("config_groups", "an object");
    return;
  }
  for (auto const& [name, entry] : fields.find("config_groups")->items()) {
    std::optional<json_fields> const group = groups->optional_object(name);
    if (!group) continue;
    std::optional<json_fields> const weights = group->optional_object("weights");
    if (!weights) {
      if (!group->has("weights")) group->fail_missing("weights", "an object");
      continue;
    }
    if (!group->has("targets")) group->fail_missing("targets", "a list of module names");
    declared.groups.push_back(
        {read_weights(*weights), read_patterns(*group, "targets", module_pattern::syntax::target)});
  }
}

bool any_matches(std::vector<module_pattern> const& patterns, std::string_view module) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](module_pattern const& pattern) { return pattern.matches(module); });
}

std::regex compile(std::string_view text) {
  constexpr std::size_t max_bytes = 4096;
  auto const refuse = [&] {
    throw error(error_kind::unsupported, "has " + in_quotes(text) +
                                             ", but a regular expression of " +
                                             "ECMAScript in at most 4096 bytes is expected");
  };
  if (text.size() > max_bytes) refuse();
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  flags |= std::regex_constants::__polynomial;  // the text is a stranger's: no exponential search
#endif
  try {
    return std::regex(text.begin(), text.end(), flags);
  } catch (std::regex_error const&) {
    refuse();
  }
  return {};
}

// "FP8" or "NVFP4", or "no quantisation".
std::string shown(std::vector<std::string> const& algos) {
  std::string text;
  for (std::string const& algo : algos) {
    if (!text.empty()) text += " or ";
    text += algo.empty() ? "no quantisation" : in_quotes(algo);
  }
  return text;
}

}  // namespace

module_pattern::module_pattern(std::string_view text, syntax s)
    : text_(without_prefix(text)), syntax_(s) {
  if (s == syntax::target && text.starts_with("re:")) regex_ = compile(text.substr(3));
}

bool module_pattern::matches(std::string_view module) const {
  std::string_view const name = without_prefix(module);
  if (regex_) {
    constexpr std::array<std::string_view, 4> prefixes = {"", "model.", "model.language_model.",
                                                          "language_model.model."};
    return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
      std::string const spelling = std::string(prefix) + std::string(name);
      return std::regex_search(spelling, *regex_, std::regex_constants::match_continuous);
    });
  }
  if (syntax_ == syntax::wildcard) return matches_wildcard(text_, name);
  if (name == text_) return true;
  return syntax_ == syntax::part && (name.starts_with(text_ + ".") || name.ends_with("." + text_));
}

std::vector<std::string> quantization_declaration::algos_of(std::string_view module) const {
  std::string_view const name = without_prefix(module);
  auto const layer = layers.find(std::string(name));
  if (layer != layers.end()) return {layer->second};
  if (any_matches(excluded, name)) return {""};
  if (!groups.empty()) {
    std::set<std::string> named;
    std::set<std::string> by_class;
    for (group const& one : groups) {
      if (any_matches(one.targets, name)) named.insert(one.algo);
      bool const has_class =
          std::any_of(one.targets.begin(), one.targets.end(),
                      [](module_pattern const& target) { return target.is_class(); });
      if (has_class) by_class.insert(one.algo);
    }
    std::set<std::string> const& found = named.empty() ? by_class : named;
    if (found.empty()) return {""};
    return {found.begin(), found.end()};
  }
  if (!layers.empty()) return {""};
  if (default_algo.empty() || default_algo == "MIXED_PRECISION") return {};
  return {default_algo};
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
  require_group_of_16(*fields, declared.default_algo);
  read_layers(*fields, declared);
  declared.excluded = read_patterns(*fields, "exclude_modules", module_pattern::syntax::wildcard);
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
  using syntax = module_pattern::syntax;
  std::string const method = fields->optional_text("quant_method").value_or("modelopt");
  if (method == "compressed-tensors") {
    read_groups(*fields, declared);
    declared.excluded = read_patterns(*fields, "ignore", syntax::target);
  } else if (method == "fp8") {
    bool const by_block = fields->has("weight_block_size");
    require_block_of_128(*fields, "weight_block_size");
    declared.default_algo = by_block ? fp8_block_algo : "FP8";
    declared.excluded = read_patterns(*fields, "modules_to_not_convert", syntax::part);
  } else if (method == "modelopt") {
    read_layers(*fields, declared);
    declared.excluded = read_patterns(*fields, "ignore", syntax::wildcard);
  } else {
    fields->fail(error_kind::unsupported, "quant_method",
                 "is " + in_quotes(method) +
                     ", but \"modelopt\", \"compressed-tensors\" or \"fp8\" is expected");
  }
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

std::vector<quantization_declaration> read_declarations(std::filesystem::path const& directory,
                                                        json const& config, diagnostics& report) {
  std::vector<quantization_declaration> all;
  // A document that is wrong in itself is one error, not one for each linear that it then misses.
  std::size_t errors = report.error_count();
  auto const add = [&](quantization_declaration declared) {
    if (report.error_count() == errors) all.push_back(std::move(declared));
    errors = report.error_count();
  };
  auto inner = parse_quantization_config(config, (directory / "config.json").string(), report);
  if (inner) add(std::move(*inner));
  std::filesystem::path const path = directory / "hf_quant_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return all;
  json document;
  try {
    document = read_json_object(path);
  } catch (error const& failure) {
    report.fail(failure.kind(), failure.what());
    return all;
  }
  errors = report.error_count();
  add(parse_hf_quant_config(document, path.string(), report));
  return all;
}

void compare_declaration(quantization_declaration const& declared,
                         std::vector<stored_linear> const& stored, diagnostics& report) {
  std::map<std::pair<std::string, quant_class>, std::vector<std::string>> contradictions;
  std::set<std::string_view> names;
  for (stored_linear const& linear : stored) {
    names.insert(without_prefix(linear.module));
    std::vector<std::string> const algos = declared.algos_of(linear.module);
    if (algos.empty() || !linear.cls) continue;
    bool const agrees = std::any_of(algos.begin(), algos.end(), [&](std::string const& algo) {
      return storage_of(algo) == storage_of(*linear.cls);
    });
    if (!agrees) contradictions[{shown(algos), *linear.cls}].push_back(linear.module);
  }
  for (auto const& [kinds, modules] : contradictions) {
    std::string const sentence = declared.source + " declares " + kinds.first + " for " +
                                 std::to_string(modules.size()) + " linears that are stored as " +
                                 std::string(to_string(kinds.second));
    if (storage_of(kinds.second) == "16 bit") {
      report.warn(sentence + ", and the tensors decide: " + first_few(modules));
    } else {
      report.fail(error_kind::corrupt_data,
                  sentence + ", but both are expected to agree: " + first_few(modules));
    }
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

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/json_fields.hpp"
#include "checkpoint/json_file.hpp"
#include "checkpoint/message_text.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

// Far above any model of the family; small enough that products of three extents fit in 64 bits.
constexpr std::int64_t max_extent = 1 << 20;
constexpr std::int64_t max_heads = 4096;
constexpr std::int64_t max_head_dim = 4096;
constexpr std::int64_t max_layers = 4096;
constexpr std::int64_t max_context = std::int64_t{1} << 31;

// If the field is there, it must be one of the texts, because the server computes nothing else.
void require_text(json_fields const& fields, std::string_view key,
                  std::initializer_list<std::string_view> supported) {
  std::optional<std::string> const value = fields.optional_text(key);
  if (!value || std::find(supported.begin(), supported.end(), *value) != supported.end()) return;
  std::string list;
  for (std::string_view const text : supported) {
    list += (list.empty() ? "" : " or ") + in_quotes(text);
  }
  fields.fail(error_kind::unsupported, key,
              "is " + in_quotes(*value) + ", but only " + list + " is supported");
}

void require_boolean(json_fields const& fields, std::string_view key, bool supported) {
  std::optional<bool> const value = fields.optional_boolean(key);
  if (!value || *value == supported) return;
  fields.fail(error_kind::unsupported, key,
              std::string("is ") + (*value ? "true" : "false") + ", but only " +
                  (supported ? "true" : "false") + " is supported");
}

void require_family(json_fields const& top, json_fields const& text) {
  std::optional<std::string> const type = top.optional_text("model_type");
  if (!type) top.fail_missing("model_type", "\"qwen3_5\" or \"qwen3_5_text\"");
  require_text(top, "model_type", {"qwen3_5", "qwen3_5_text"});
  if (top.has("text_config")) require_text(text, "model_type", {"qwen3_5", "qwen3_5_text"});
  if (text.has("num_experts")) {
    text.fail(error_kind::unsupported, "num_experts",
              "is there, but only dense models are supported");
  }
}

void require_supported_form(json_fields const& text) {
  require_text(text, "hidden_act", {"silu"});
  // Describes the z gate of the linear layers; the output gate of full attention is a sigmoid
  // anyway.
  require_text(text, "output_gate_type", {"swish", "silu"});
  require_boolean(text, "attention_bias", false);
  require_boolean(text, "attn_output_gate", true);
  require_boolean(text, "mtp_use_dedicated_embeddings", false);
}

// A number that may stand in `text` itself, in `rope`, or, with the same value, in both.
double rope_number(json_fields const& text, std::optional<json_fields> const& rope,
                   std::string_view key, double low, double high) {
  std::optional<double> const outer = text.optional_number(key, low, high);
  std::optional<double> const inner = rope ? rope->optional_number(key, low, high) : std::nullopt;
  if (!outer && !inner) text.fail_missing(key, "a number here or in rope_parameters");
  if (outer && inner && *outer != *inner) {
    text.fail(error_kind::corrupt_data, key,
              "is " + json(*outer).dump() + ", but rope_parameters." + std::string(key) + " is " +
                  json(*inner).dump());
  }
  return inner ? *inner : outer.value_or(low);
}

void read_rope(json_fields const& text, model_config& config) {
  std::optional<json_fields> const rope = text.optional_object("rope_parameters");
  if (rope) require_text(*rope, "rope_type", {"default"});
  if (std::optional<json_fields> const scaling = text.optional_object("rope_scaling")) {
    require_text(*scaling, "rope_type", {"default"});
    require_text(*scaling, "type", {"default"});
  }
  config.rope_theta = rope_number(text, rope, "rope_theta", 1, 1e12);
  double const factor = rope_number(text, rope, "partial_rotary_factor", 0, 1);
  double const rotary = factor * static_cast<double>(config.head_dim);
  config.rotary_dim = std::llround(rotary);
  if (static_cast<double>(config.rotary_dim) != rotary || config.rotary_dim < 2 ||
      config.rotary_dim % 2 != 0) {
    text.fail(
        error_kind::corrupt_data, "partial_rotary_factor",
        "times head_dim is " + json(rotary).dump() + ", but an even number of dims is expected");
    return;
  }
  json const* const section = rope ? rope->find("mrope_section") : nullptr;
  if (section == nullptr) return;
  // Text tokens turn by plain RoPE whatever the split into sections is, as long as it covers every
  // pair.
  std::int64_t sum = 0;
  bool is_list = section->is_array();
  for (json const& part : *section) {
    std::optional<std::int64_t> const pairs = integer_in(part, 0, max_head_dim);
    is_list = is_list && pairs.has_value();
    sum += pairs.value_or(0);
  }
  if (!is_list || sum != config.rotary_dim / 2) {
    rope->fail_value("mrope_section", *section,
                     "a list of counts that sum to half the rotary dim, " +
                         std::to_string(config.rotary_dim / 2) + ",");
  }
}

void read_layer_types(json_fields const& text, json const& types, model_config& config) {
  if (!types.is_array() || types.size() != static_cast<std::size_t>(config.num_hidden_layers)) {
    text.fail(error_kind::corrupt_data, "layer_types",
              "has " + std::to_string(types.size()) + " entries, but num_hidden_layers is " +
                  std::to_string(config.num_hidden_layers));
    return;
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    json const& type = types[i];
    if (type == "linear_attention") {
      config.layers[i] = layer_kind::linear_attention;
    } else if (type == "full_attention") {
      config.layers[i] = layer_kind::full_attention;
    } else {
      text.fail(error_kind::unsupported, "layer_types[" + std::to_string(i) + "]",
                "is " +
                    (type.is_string() ? in_quotes(type.get<std::string>())
                                      : std::string(type.type_name())) +
                    ", but \"linear_attention\" or \"full_attention\" is expected");
    }
  }
}

void read_layers(json_fields const& text, model_config& config) {
  config.num_hidden_layers = text.integer("num_hidden_layers", 1, max_layers);
  config.layers.assign(static_cast<std::size_t>(config.num_hidden_layers),
                       layer_kind::linear_attention);
  if (json const* const types = text.find("layer_types")) {
    read_layer_types(text, *types, config);
    return;
  }
  std::optional<std::int64_t> const interval =
      text.optional_integer("full_attention_interval", 1, max_layers);
  if (!interval) text.fail_missing("layer_types", "it or full_attention_interval");
  // Every interval-th layer is a full one, the last of each group.
  for (std::int64_t i = interval.value_or(1) - 1; i < config.num_hidden_layers;
       i += interval.value_or(1)) {
    config.layers[static_cast<std::size_t>(i)] = layer_kind::full_attention;
  }
}

void require_multiple(json_fields const& text, std::string_view key, std::int64_t value,
                      std::string_view of_key, std::int64_t of) {
  if (value % of == 0) return;
  text.fail(error_kind::corrupt_data, key,
            "is " + std::to_string(value) + ", but a multiple of " + std::string(of_key) + ", " +
                std::to_string(of) + ", is expected");
}

bool read_tie(json_fields const& top, json_fields const& text) {
  std::optional<bool> const outer = top.optional_boolean("tie_word_embeddings");
  std::optional<bool> const inner = text.optional_boolean("tie_word_embeddings");
  if (outer && inner && *outer != *inner) {
    text.fail(error_kind::corrupt_data, "tie_word_embeddings",
              "contradicts the tie_word_embeddings at the top of the document");
  }
  return outer.value_or(inner.value_or(false));
}

std::int64_t read_token_id(json_fields const& fields, std::string const& key, json const& value,
                           std::int64_t vocab_size) {
  std::optional<std::int64_t> const id = integer_in(value, 0, vocab_size - 1);
  if (!id) {
    fields.fail_value(key, value,
                      "a token id below the vocabulary's " + std::to_string(vocab_size) + " rows");
  }
  return id.value_or(0);
}

}  // namespace

model_config parse_model_config(json const& document, std::string const& label,
                                diagnostics& report) {
  json_fields const top(document, label, "", report);
  json_fields const text = top.optional_object("text_config").value_or(top);
  model_config config;
  require_family(top, text);
  require_supported_form(text);
  config.vocab_size = text.integer("vocab_size", 1, max_vocab_size);
  config.hidden_size = text.integer("hidden_size", 1, max_extent);
  config.intermediate_size = text.integer("intermediate_size", 1, max_extent);
  read_layers(text, config);
  config.num_attention_heads = text.integer("num_attention_heads", 1, max_heads);
  config.num_kv_heads = text.integer("num_key_value_heads", 1, max_heads);
  require_multiple(text, "num_attention_heads", config.num_attention_heads, "num_key_value_heads",
                   config.num_kv_heads);
  config.head_dim = text.integer("head_dim", 2, max_head_dim);
  read_rope(text, config);
  std::optional<double> const eps = text.optional_number("rms_norm_eps", 1e-12, 1e-2);
  if (!eps) text.fail_missing("rms_norm_eps", "a number");
  config.rms_norm_eps = eps.value_or(1e-6);
  config.linear_num_key_heads = text.integer("linear_num_key_heads", 1, max_heads);
  config.linear_num_value_heads = text.integer("linear_num_value_heads", 1, max_heads);
  require_multiple(text, "linear_num_value_heads", config.linear_num_value_heads,
                   "linear_num_key_heads", config.linear_num_key_heads);
  config.linear_key_head_dim = text.integer("linear_key_head_dim", 1, max_head_dim);
  config.linear_value_head_dim = text.integer("linear_value_head_dim", 1, max_head_dim);
  config.conv_kernel = text.integer("linear_conv_kernel_dim", 2, 16);
  config.max_position_embeddings = text.integer("max_position_embeddings", 1, max_context);
  config.mtp_num_hidden_layers = (text.has("mtp_num_hidden_layers") ? text : top)
                                     .optional_integer("mtp_num_hidden_layers", 0, 1)
                                     .value_or(0);
  config.tie_word_embeddings = read_tie(top, text);
  return config;
}

model_config load_model_config(std::filesystem::path const& directory) {
  std::filesystem::path const path = directory / "config.json";
  diagnostics strict(diagnostics::mode::strict);
  return parse_model_config(read_json_object(path), path.string(), strict);
}

generation_config parse_generation_config(json const& document, std::string const& label,
                                          std::int64_t vocab_size, diagnostics& report) {
  json_fields const fields(document, label, "", report);
  generation_config config;
  if (json const* const eos = fields.find("eos_token_id")) {
    if (eos->is_array()) {
      for (std::size_t i = 0; i < eos->size(); ++i) {
        config.eos_token_ids.push_back(read_token_id(
            fields, "eos_token_id[" + std::to_string(i) + "]", (*eos)[i], vocab_size));
      }
    } else {
      config.eos_token_ids.push_back(read_token_id(fields, "eos_token_id", *eos, vocab_size));
    }
  }
  if (config.eos_token_ids.empty()) {
    fields.fail(
        error_kind::corrupt_data, "eos_token_id",
        "names no token, so that no answer could end; a token id or a list of them is expected");
  }
  config.bos_token_id = fields.optional_integer("bos_token_id", 0, vocab_size - 1);
  config.pad_token_id = fields.optional_integer("pad_token_id", 0, vocab_size - 1);
  config.do_sample = fields.optional_boolean("do_sample").value_or(config.do_sample);
  config.temperature = fields.optional_number("temperature", 0, 100).value_or(config.temperature);
  config.top_k = fields.optional_integer("top_k", 0, max_vocab_size).value_or(config.top_k);
  config.top_p = fields.optional_number("top_p", 0, 1).value_or(config.top_p);
  config.min_p = fields.optional_number("min_p", 0, 1).value_or(config.min_p);
  config.repetition_penalty =
      fields.optional_number("repetition_penalty", 1e-3, 1e3).value_or(config.repetition_penalty);
  config.presence_penalty =
      fields.optional_number("presence_penalty", -100, 100).value_or(config.presence_penalty);
  return config;
}

generation_config load_generation_config(std::filesystem::path const& directory,
                                         std::int64_t vocab_size) {
  std::filesystem::path const path = directory / "generation_config.json";
  diagnostics strict(diagnostics::mode::strict);
  return parse_generation_config(read_json_object(path), path.string(), vocab_size, strict);
}

}  // namespace qwen38::checkpoint

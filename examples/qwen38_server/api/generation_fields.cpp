// SPDX-License-Identifier: Apache-2.0
#include "api/generation_fields.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "api/errors.hpp"
#include "api/unserved_fields.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t max_stop_strings = 16;
constexpr std::size_t max_stop_bytes = 1024;
constexpr std::size_t max_stop_ids = 256;

void check_model(request_fields const& body, settings const& served) {
  auto const name = body.string("model");
  if (!name || served.accept_any_model || *name == served.model_id ||
      std::find(served.aliases.begin(), served.aliases.end(), *name) != served.aliases.end()) {
    return;
  }
  throw field_error(
      error_kind::not_found, "model",
      "model: this name is not served here; this server has `" + served.model_id + "`.");
}

float read_float(request_fields const& body, std::string_view name, double low, double high,
                 float otherwise) {
  auto const given = body.number(name, low, high);
  return given ? static_cast<float>(*given) : otherwise;
}

std::uint64_t random_seed() {
  std::random_device source;
  return static_cast<std::uint64_t>(source()) << 32U | source();
}

engine::sampling_params read_sampling(request_fields const& body,
                                      generation_defaults const& defaults) {
  auto const& base = defaults.sampling;
  engine::sampling_params out;
  out.temperature = read_float(body, "temperature", 0, 100, base.temperature);
  out.top_p = read_float(body, "top_p", 0, 1, base.top_p);
  out.min_p = read_float(body, "min_p", 0, 1, base.min_p);
  // -1 is how vLLM's clients say "off".
  auto const top_k = body.integer("top_k", -1, max_int32);
  out.top_k = top_k ? static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0)) : base.top_k;
  out.repetition_penalty =
      read_float(body, "repetition_penalty", 0.01, 100, base.repetition_penalty);
  out.frequency_penalty = read_float(body, "frequency_penalty", -2, 2, base.frequency_penalty);
  out.presence_penalty = read_float(body, "presence_penalty", -2, 2, base.presence_penalty);
  auto const seed = body.integer_bits("seed");
  out.seed = seed ? *seed : defaults.seed ? *defaults.seed : random_seed();
  return out;
}

std::optional<std::int64_t> read_max_tokens(request_fields const& body) {
  auto const tokens = body.integer("max_tokens", 1, max_int32);
  auto const completion = body.integer("max_completion_tokens", 1, max_int32);
  if (tokens && completion && *tokens != *completion) {
    throw field_error(error_kind::invalid_argument, body.path_of("max_completion_tokens"),
                      "max_tokens and max_completion_tokens differ: expected one of them, or the "
                      "same value in both.");
  }
  return completion ? completion : tokens;
}

void add_stop_string(std::string const& path, json const& value, std::vector<std::string>& out) {
  if (!value.is_string()) fail_field(path, "a string", value);
  auto const& text = value.get_ref<std::string const&>();
  if (text.empty() || text.size() > max_stop_bytes) {
    throw field_error(error_kind::invalid_argument, path,
                      path + ": expected a string of 1 to " + std::to_string(max_stop_bytes) +
                          " bytes, got " + std::to_string(text.size()) + " bytes.");
  }
  out.push_back(text);
}

std::vector<std::string> read_stop_strings(request_fields const& body) {
  std::vector<std::string> out;
  auto const* const stop = body.find("stop");
  if (stop == nullptr) return out;
  if (!stop->is_array()) {
    if (!stop->is_string())
      fail_field(body.path_of("stop"), "a string or an array of strings", *stop);
    add_stop_string(body.path_of("stop"), *stop, out);
    return out;
  }
  auto const& list = *body.array("stop", max_stop_strings);
  for (std::size_t i = 0; i < list.size(); ++i) {
    add_stop_string(body.path_of("stop") + '[' + std::to_string(i) + ']', list[i], out);
  }
  return out;
}

std::vector<std::int32_t> read_stop_ids(request_fields const& body, settings const& served,
                                        model_limits const& limits) {
  std::vector<std::int32_t> out;
  if (!body.boolean("ignore_eos").value_or(false)) out = served.eos_ids;
  if (auto const* const list = body.array("stop_token_ids", max_stop_ids)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      auto const id = as_integer((*list)[i], 0, limits.vocab_size - 1);
      if (!id) {
        fail_field(body.path_of("stop_token_ids") + '[' + std::to_string(i) + ']',
                   "a token id from 0 to " + std::to_string(limits.vocab_size - 1), (*list)[i]);
      }
      out.push_back(static_cast<std::int32_t>(*id));
    }
  }
  return out;
}

/// `speculative`: {"k": 0 to 15, or "auto"}.
void read_depth(request_fields const& body, generation_defaults const& defaults,
                model_limits const& limits, engine::request& into) {
  bool chooses = limits.supports_drafts && defaults.chooses_depth;
  std::int64_t depth = limits.supports_drafts ? defaults.draft_tokens : 0;
  if (auto const* const speculative = body.object("speculative")) {
    request_fields const fields(*speculative, body.path_of("speculative"));
    fields.refuse_others({"k"});
    auto const* const given = fields.find("k");
    if (given != nullptr && given->is_string() && given->get_ref<std::string const&>() == "auto") {
      chooses = limits.supports_drafts;
      depth = chooses ? engine::max_draft_tokens : 0;
    } else if (given != nullptr) {
      auto const k = as_integer(*given, 0, engine::max_draft_tokens);
      if (!k) fail_field(fields.path_of("k"), "an integer from 0 to 15, or `auto`", *given);
      if (*k > 0 && !limits.supports_drafts) {
        fields.refuse("k", "speculative.k: this model has no MTP layer, so k must be 0.");
      }
      chooses = false;
      depth = *k;
    }
  }
  into.draft_tokens = static_cast<int>(depth);
  into.chooses_depth = chooses;
}

}  // namespace

generation_fields read_generation_fields(request_fields const& body, settings const& served,
                                         model_limits const& limits) {
  check_model(body, served);
  refuse_unserved_fields(body);

  generation_fields out;
  out.stream = body.boolean("stream").value_or(false);
  if (auto const* const options = body.object("stream_options")) {
    request_fields const fields(*options, body.path_of("stream_options"));
    fields.refuse_others({"include_usage"});
    out.include_usage = fields.boolean("include_usage").value_or(false);
  }

  auto& request = out.request;
  request.sampling = read_sampling(body, served.defaults);
  auto const max_tokens = read_max_tokens(body);
  out.max_tokens_given = max_tokens.has_value();
  request.max_tokens = max_tokens.value_or(served.defaults.max_tokens);
  request.min_tokens = body.integer("min_tokens", 0, max_int32).value_or(0);
  if (request.min_tokens > request.max_tokens) {
    throw field_error(error_kind::invalid_argument, body.path_of("min_tokens"),
                      "min_tokens: expected at most max_tokens (" +
                          std::to_string(request.max_tokens) + "), got " +
                          std::to_string(request.min_tokens) + '.');
  }
  read_depth(body, served.defaults, limits, request);
  request.stop_ids = read_stop_ids(body, served, limits);
  request.stop_strings = read_stop_strings(body);
  return out;
}

}  // namespace qwen38::api

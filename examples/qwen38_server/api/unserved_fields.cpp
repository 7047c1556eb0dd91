// SPDX-License-Identifier: Apache-2.0
#include "api/unserved_fields.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

/// The values of a field that ask for nothing.
enum class neutral {
  null,   ///< no other
  empty,  ///< "", [] and {}
  off,    ///< a boolean: false
  on,     ///< a boolean: true
  zero,   ///< a number: 0
  one,    ///< a number: 1
};

struct unserved_field {
  std::string_view name;
  neutral passes;
  std::string_view reason;  ///< the rest of a sentence that begins with the name and a colon
};

constexpr std::string_view no_probabilities =
    "token probabilities are not supported; leave it out.";
constexpr std::string_view no_grammar =
    "this name is not served; use response_format of a chat completion.";
constexpr std::string_view no_sampler = "this way of sampling is not supported; leave it out.";
constexpr std::string_view only_text = "only text is served; leave it out.";
constexpr std::string_view only_chat = "served for chat completions only; leave it out.";

constexpr auto body_fields = std::to_array<unserved_field>({
    {"echo", neutral::off, "repeating the prompt is not supported; it must be false."},
    {"suffix", neutral::empty, "filling in the middle is not supported; leave it out."},
    {"store", neutral::off, "answers are not stored, so it must be false."},
    {"prediction", neutral::null, "predicted outputs are not supported; leave it out."},
    {"web_search_options", neutral::null, "there is no web search here; leave it out."},
    {"audio", neutral::null, only_text},
    {"mm_processor_kwargs", neutral::empty, only_text},
    {"documents", neutral::empty, "documents belong in the messages; leave it out."},
    {"chat_template", neutral::null, "the checkpoint's own template is used; leave it out."},
    {"add_generation_prompt", neutral::on, "false is not served; leave it out."},
    {"continue_final_message", neutral::off, "true is not served; leave it out."},
    {"truncate_prompt_tokens", neutral::null, "prompts are never cut; leave it out."},
    {"prompt_logprobs", neutral::null, no_probabilities},
    {"n_probs", neutral::zero, no_probabilities},
    {"structured_outputs", neutral::null, no_grammar},
    {"guided_json", neutral::null, no_grammar},
    {"guided_regex", neutral::empty, no_grammar},
    {"guided_choice", neutral::empty, no_grammar},
    {"guided_grammar", neutral::empty, no_grammar},
    {"json_schema", neutral::null, no_grammar},
    {"grammar", neutral::empty, no_grammar},
    {"allowed_token_ids", neutral::null, "restricting tokens is not supported; leave it out."},
    {"bad_words", neutral::empty, "forbidding words is not supported; leave it out."},
    {"logits_processors", neutral::empty, no_sampler},
    {"use_beam_search", neutral::off, "beam search is not supported; it must be false."},
    {"typical_p", neutral::one, no_sampler},
    {"tfs_z", neutral::one, no_sampler},
    {"top_a", neutral::zero, no_sampler},
    {"mirostat", neutral::zero, no_sampler},
    {"dynatemp_range", neutral::zero, no_sampler},
    {"dry_multiplier", neutral::zero, no_sampler},
    {"xtc_probability", neutral::zero, no_sampler},
    {"n_predict", neutral::null, "this limit is called max_tokens here."},
    {"include_stop_str_in_output", neutral::off,
     "a stop string is never part of the text; it must be false."},
    {"skip_special_tokens", neutral::on, "control tokens are never printed; it must be true."},
    {"return_token_ids", neutral::off, "token ids are not returned; it must be false."},
    {"return_tokens_as_token_ids", neutral::off, "token ids are not returned; it must be false."},
    {"include_reasoning", neutral::on,
     "reasoning is always part of the answer; switch thinking off instead."},
    {"reasoning", neutral::null, "the effort is set by reasoning_effort; leave it out."},
    {"thinking", neutral::null, "thinking is switched by enable_thinking; leave it out."},
    {"functions", neutral::empty, "this older name is not served; use tools."},
    {"priority", neutral::zero, "requests are served in order, so it must be 0."},
    {"cache_salt", neutral::empty, "prefixes are shared by all requests; leave it out."},
});

constexpr auto chat_fields = std::to_array<unserved_field>({
    {"tools", neutral::empty, only_chat},
    {"top_logprobs", neutral::zero, only_chat},
    {"thinking_budget", neutral::null, only_chat},
    {"thinking_token_budget", neutral::null, only_chat},
});

constexpr auto message_fields = std::to_array<unserved_field>({
    {"function_call", neutral::null, "calls are read from tool_calls; leave it out."},
    {"audio", neutral::null, only_text},
    {"prefix", neutral::off, "true is not served; leave it out."},
});

bool is_neutral(request_fields const& fields, unserved_field const& field) {
  auto const is_flag = [&](bool wanted) { return fields.boolean(field.name) == wanted; };
  auto const is_number = [&](double wanted) {
    constexpr auto most = std::numeric_limits<double>::max();
    return fields.number(field.name, -most, most) == wanted;
  };
  auto const* const value = fields.find(field.name);
  if (value == nullptr) return true;
  switch (field.passes) {
    case neutral::null: return false;
    case neutral::empty:
      return value->is_string() ? value->get_ref<std::string const&>().empty()
                                : value->is_structured() && value->empty();
    case neutral::off: return is_flag(false);
    case neutral::on: return is_flag(true);
    case neutral::zero: return is_number(0);
    case neutral::one: return is_number(1);
  }
  return false;
}

void refuse_all(request_fields const& fields, std::span<unserved_field const> table) {
  for (auto const& field : table) {
    if (is_neutral(fields, field)) continue;
    fields.refuse(field.name, fields.path_of(field.name) + ": " + std::string(field.reason));
  }
}

void refuse_several_answers(request_fields const& body) {
  for (std::string_view const name : {"n", "best_of"}) {
    auto const count = body.integer(name, 1, std::numeric_limits<std::int32_t>::max());
    if (count.value_or(1) == 1) continue;
    body.refuse(name, std::string(name) + ": one answer per request is served, so it must be 1.");
  }
}

void refuse_biases(request_fields const& body) {
  if (auto const* const bias = body.object("logit_bias")) {
    bool const all_zero = std::all_of(bias->begin(), bias->end(), [](json const& value) {
      return value.is_number() && value.get<double>() == 0.0;
    });
    if (!all_zero) body.refuse("logit_bias", "logit_bias: biasing single tokens is not supported.");
  }
}

void refuse_other_texts(request_fields const& body, std::string_view name,
                        std::initializer_list<std::string_view> served) {
  auto const given = body.string(name);
  if (!given || std::find(served.begin(), served.end(), *given) != served.end()) return;
  std::string names;
  for (auto const one : served) {
    if (!names.empty()) names += " and ";
    names += '`' + std::string(one) + '`';
  }
  body.refuse(name, std::string(name) + ": only " + names +
                        (served.size() > 1 ? " are served." : " is served."));
}

void refuse_other_outputs(request_fields const& body) {
  if (auto const* const modalities = body.array("modalities", 16)) {
    for (auto const& kind : *modalities) {
      if (kind != json("text")) body.refuse("modalities", "modalities: only `text` is served.");
    }
  }
}

/// The older name of tool_choice.
void refuse_function_choice(request_fields const& body) {
  auto const* const value = body.find("function_call");
  if (value == nullptr || *value == json("none") || *value == json("auto")) return;
  body.refuse("function_call", "function_call: this older name is not served; use tool_choice.");
}

}  // namespace

void refuse_unserved_fields(request_fields const& body) {
  refuse_several_answers(body);
  refuse_biases(body);
  refuse_other_texts(body, "service_tier", {"auto", "default"});
  refuse_other_texts(body, "verbosity", {"medium"});
  refuse_other_outputs(body);
  refuse_function_choice(body);
  refuse_all(body, body_fields);
}

void refuse_chat_fields(request_fields const& body) {
  refuse_all(body, chat_fields);
  if (auto const* const choice = body.find("tool_choice");
      choice != nullptr && *choice != json("none") && *choice != json("auto")) {
    body.refuse("tool_choice", "tool_choice: " + std::string(only_chat));
  }
  static_cast<void>(body.boolean("parallel_tool_calls"));  // neutral either way without tools
  if (auto const* const format = body.object("response_format")) {
    request_fields const fields(*format, "response_format");
    if (fields.string("type").value_or("text") != "text") {
      fields.refuse("type", "response_format.type: " + std::string(only_chat));
    }
  }
}

void refuse_unserved_message_fields(request_fields const& message) {
  refuse_all(message, message_fields);
}

}  // namespace qwen38::api

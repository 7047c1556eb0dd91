// SPDX-License-Identifier: Apache-2.0
#include "api/chat_completions.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/chat_messages.hpp"
#include "api/errors.hpp"
#include "api/output_fields.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

/// An effort as the template names it; "none" for no thinking at all; nullopt where the field is
/// absent or "".
std::optional<std::string> read_effort(request_fields const& fields) {
  auto const name = fields.string("reasoning_effort");
  if (!name || name->empty()) return std::nullopt;
  if (auto const known = text::parse_reasoning_effort(*name)) return std::string(*known);
  auto const path = fields.path_of("reasoning_effort");
  throw field_error(error_kind::invalid_argument, path,
                    path + ": expected none, minimal, low, medium, high, xhigh or max.");
}

text::chat_options read_options(request_fields const& body, generation_defaults const& defaults) {
  static json const nothing = json::object();
  auto const* const kwargs = body.object("chat_template_kwargs");
  request_fields const inner(kwargs != nullptr ? *kwargs : nothing, "chat_template_kwargs");

  auto const thinking = [&] {
    auto const given = inner.boolean("enable_thinking");
    auto const outer = body.boolean("enable_thinking");
    return given ? given : outer;
  }();
  auto const effort = [&] {
    auto given = read_effort(inner);
    auto outer = read_effort(body);
    return given ? given : outer;
  }();
  auto const preserve = [&] {
    auto const given = inner.boolean("preserve_thinking");
    auto const outer = body.boolean("preserve_thinking");
    return given ? given : outer;
  }();

  text::chat_options out = text::default_chat_options(defaults.chat_format);
  out.enable_thinking = defaults.enable_thinking;
  out.reasoning_effort = defaults.reasoning_effort;
  if (preserve) out.preserve_thinking = *preserve;
  if (effort == "none") {
    if (thinking.value_or(false)) {
      throw field_error(error_kind::invalid_argument, "reasoning_effort",
                        "reasoning_effort: `none` contradicts enable_thinking: true.");
    }
    out.enable_thinking = false;
  } else if (effort) {
    out.reasoning_effort = *effort;
    out.enable_thinking = true;  // who asks for an effort asks for thinking
  }
  if (thinking) out.enable_thinking = *thinking;
  return out;
}

}  // namespace

chat_request parse_chat_request(json const& body, settings const& served,
                                model_limits const& limits) {
  request_fields const fields(body);
  chat_request out;
  out.generation = read_generation_fields(fields, served, limits);
  out.options = read_options(fields, served.defaults);
  out.messages = read_chat_messages(body);
  out.generation.request.split_reasoning = true;
  out.generation.request.starts_in_reasoning = out.options.enable_thinking;
  out.generation.request.top_logprobs = read_chat_logprobs(fields);
  out.generation.request.thinking_budget = read_thinking_budget(fields);
  out.tools = read_chat_tools(fields, out.options.enable_thinking);
  out.generation.grammar = read_response_format(fields, out.options.enable_thinking);
  if (out.generation.grammar != nullptr && out.tools.signatures != nullptr) {
    fields.refuse("response_format",
                  "response_format: cannot be served beside tools; leave out one of them.");
  }
  if (out.tools.grammar != nullptr) out.generation.grammar = out.tools.grammar;
  return out;
}

}  // namespace qwen38::api

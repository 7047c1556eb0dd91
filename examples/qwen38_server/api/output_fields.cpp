// SPDX-License-Identifier: Apache-2.0
#include "api/output_fields.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "api/errors.hpp"
#include "text/answer_grammar.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t most_logprobs = 20;
constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

std::shared_ptr<text::byte_grammar const> make_grammar(json const* schema, std::string const& path,
                                                       bool starts_in_reasoning) {
  try {
    return std::make_shared<text::byte_grammar const>(
        text::make_json_grammar(schema, starts_in_reasoning));
  } catch (error const& cause) {
    throw field_error(cause.kind(), path, path + ": " + cause.what());
  }
}

[[noreturn]] void refuse_without_schema(std::string const& path) {
  throw field_error(error_kind::invalid_argument, path, path + ": expected a schema, got none.");
}

}  // namespace

std::shared_ptr<text::byte_grammar const> read_response_format(request_fields const& body,
                                                               bool starts_in_reasoning) {
  auto const* const format = body.object("response_format");
  if (format == nullptr) return nullptr;
  request_fields const fields(*format, body.path_of("response_format"));
  auto const type = fields.string("type").value_or("text");
  if (type == "text") {
    fields.refuse_others({"type"});
    return nullptr;
  }
  if (type == "json_object") {
    fields.refuse_others({"type", "schema"});
    return make_grammar(fields.find("schema"), fields.path_of("schema"), starts_in_reasoning);
  }
  if (type != "json_schema") {
    fields.refuse("type", fields.path_of("type") +
                              ": only `text`, `json_object` and `json_schema` are served.");
  }
  fields.refuse_others({"type", "json_schema"});
  auto const* const given = fields.object("json_schema");
  if (given == nullptr) refuse_without_schema(fields.path_of("json_schema"));
  request_fields const inner(*given, fields.path_of("json_schema"));
  inner.refuse_others({"name", "description", "strict", "schema"});
  static_cast<void>(inner.string("name"));
  static_cast<void>(inner.string("description"));
  static_cast<void>(inner.boolean("strict"));
  auto const* const schema = inner.find("schema");
  if (schema == nullptr) refuse_without_schema(inner.path_of("schema"));
  return make_grammar(schema, inner.path_of("schema"), starts_in_reasoning);
}

std::optional<int> read_chat_logprobs(request_fields const& body) {
  bool const wanted = body.boolean("logprobs").value_or(false);
  auto const top = body.integer("top_logprobs", 0, most_logprobs).value_or(0);
  if (!wanted && top > 0) {
    throw field_error(error_kind::invalid_argument, "top_logprobs",
                      "top_logprobs: expected logprobs to be true beside it.");
  }
  return wanted ? std::optional(static_cast<int>(top)) : std::nullopt;
}

std::optional<int> read_completion_logprobs(request_fields const& body) {
  auto const* const given = body.find("logprobs");
  if (given == nullptr || *given == json(false)) return std::nullopt;
  auto const count = body.integer("logprobs", 0, most_logprobs);
  return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

std::optional<std::int64_t> read_thinking_budget(request_fields const& body) {
  std::optional<std::int64_t> out;
  auto const read = [&](request_fields const& fields, std::string_view name) {
    auto const given = fields.integer(name, 0, max_int32);
    if (given && out && *given != *out) {
      auto const path = fields.path_of(name);
      throw field_error(error_kind::invalid_argument, path,
                        path + ": expected the same value as in the other name of this field.");
    }
    if (given) out = given;
  };
  read(body, "thinking_budget");
  read(body, "thinking_token_budget");
  if (auto const* const kwargs = body.object("chat_template_kwargs")) {
    read(request_fields(*kwargs, body.path_of("chat_template_kwargs")), "thinking_budget");
  }
  return out;
}

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#include "api/tokenize.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.hpp"
#include "api/json_text.hpp"
#include "api/request_fields.hpp"

namespace qwen38::api {
namespace {

template <class Append>
void append_list(std::string& out, std::span<std::int32_t const> ids, Append const& append) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append(ids[i]);
  }
  out += ']';
}

}  // namespace

reply tokens_reply(nlohmann::ordered_json const& body, std::span<std::int32_t const> ids,
                   model_limits const& limits, text::tokenizer const& tokenizer) {
  bool const with_texts = request_fields(body).boolean("return_token_strs").value_or(false);
  reply made;
  std::string& out = made.body;
  out = R"({"count":)";
  append_json_integer(out, static_cast<std::int64_t>(ids.size()));
  out += R"(,"max_model_len":)";
  append_json_integer(out, limits.max_context);
  out += R"(,"tokens":)";
  append_list(out, ids, [&](std::int32_t id) { append_json_integer(out, id); });
  if (with_texts) {
    out += R"(,"token_strs":)";
    append_list(out, ids,
                [&](std::int32_t id) { append_json_string(out, tokenizer.token_bytes(id)); });
  }
  out += "}\n";
  return made;
}

reply text_reply(nlohmann::ordered_json const& body, model_limits const& limits,
                 text::tokenizer const& tokenizer) {
  request_fields const fields(body);
  auto const* const tokens = fields.array("tokens", SIZE_MAX);
  if (tokens == nullptr) {
    throw field_error(error_kind::invalid_argument, "tokens",
                      "tokens: expected an array of token ids, got none.");
  }
  std::vector<std::int32_t> ids;
  ids.reserve(tokens->size());
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    auto const id = as_integer((*tokens)[i], 0, limits.vocab_size - 1);
    if (!id) {
      fail_field("tokens[" + std::to_string(i) + ']',
                 "a token id from 0 to " + std::to_string(limits.vocab_size - 1), (*tokens)[i]);
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  reply made;
  made.body = R"({"prompt":)";
  std::string const text = tokenizer.decode(ids, /*skip_special=*/false);
  append_json_string(made.body, std::string_view(text));
  made.body += "}\n";
  return made;
}

}  // namespace qwen38::api

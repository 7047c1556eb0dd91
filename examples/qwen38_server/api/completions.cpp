// SPDX-License-Identifier: Apache-2.0
#include "api/completions.hpp"

#include <nlohmann/json.hpp>

#include "api/errors.hpp"
#include "api/output_fields.hpp"
#include "api/unserved_fields.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

[[noreturn]] void refuse_empty() {
  throw field_error(error_kind::invalid_argument, "prompt",
                    "prompt: expected a text or token ids, got nothing.");
}

std::vector<std::int32_t> read_ids(json const& list, std::string const& path,
                                   std::int32_t vocab_size) {
  std::vector<std::int32_t> out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto const id = as_integer(list[i], 0, vocab_size - 1);
    if (!id) {
      fail_field(path + '[' + std::to_string(i) + ']',
                 "a token id from 0 to " + std::to_string(vocab_size - 1), list[i]);
    }
    out.push_back(static_cast<std::int32_t>(*id));
  }
  if (out.empty()) refuse_empty();
  return out;
}

std::variant<std::string, std::vector<std::int32_t>> read_prompt(request_fields const& body,
                                                                 std::int32_t vocab_size) {
  auto const* prompt = body.find("prompt");
  if (prompt == nullptr) refuse_empty();
  std::string path = "prompt";
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    if (prompt->size() > 1) {
      body.refuse("prompt", "prompt: one prompt per request is served, got an array of " +
                                std::to_string(prompt->size()) + '.');
    }
    prompt = &prompt->front();
    path += "[0]";
  }
  if (prompt->is_array()) return read_ids(*prompt, path, vocab_size);
  if (!prompt->is_string()) fail_field(path, "a string or an array of token ids", *prompt);
  auto text = prompt->get<std::string>();
  if (text.empty()) refuse_empty();
  return text;
}

}  // namespace

completion_request parse_completion_request(json const& body, settings const& served,
                                            model_limits const& limits) {
  request_fields const fields(body);
  completion_request out;
  out.generation = read_generation_fields(fields, served, limits);
  refuse_chat_fields(fields);
  out.generation.request.top_logprobs = read_completion_logprobs(fields);
  out.prompt = read_prompt(fields, limits.vocab_size);
  return out;
}

}  // namespace qwen38::api

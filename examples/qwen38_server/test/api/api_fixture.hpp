// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/errors.hpp"
#include "api/json_body.hpp"
#include "api/settings.hpp"
#include "test/support/byte_tokenizer.hpp"

namespace qwen38::api {

inline settings served_settings() {
  settings out;
  out.model_id = "qwen3.8-demo";
  out.aliases = {"demo"};
  out.created = 1700000000;
  out.eos_ids = {test::im_end_id, test::endoftext_id};
  out.defaults.sampling.temperature = 1.0F;
  out.defaults.sampling.top_k = 20;
  out.defaults.sampling.top_p = 0.95F;
  out.defaults.max_tokens = 100;
  out.defaults.draft_tokens = 3;
  return out;
}

inline model_limits served_limits() {
  return {4096, test::byte_vocab_size, true};
}

/// What a call was refused with; status 200 if it was not.
struct refusal {
  int status = 200;
  std::string param;
  std::string message;
};

inline refusal refusal_of(std::function<void()> const& call) {
  try {
    call();
  } catch (std::exception const& cause) {
    auto const what = describe_error(cause);
    return {what.status, what.param.value_or(""), what.message};
  }
  return {};
}

/// One sentence and no more, in printable ASCII.
inline bool is_sentence(std::string const& message) {
  for (char const c : message) {
    if (c < ' ' || c > '~') return false;
  }
  return message.size() > 10 && message.back() == '.' && message.find(". ") == std::string::npos;
}

}  // namespace qwen38::api

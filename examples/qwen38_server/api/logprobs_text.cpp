// SPDX-License-Identifier: Apache-2.0
#include "api/logprobs_text.hpp"

#include <algorithm>
#include <string_view>

#include "api/json_text.hpp"
#include "text/utf8.hpp"

namespace qwen38::api {
namespace {

/// append(element) for each, with commas between.
template <class Range, class Append>
void append_list(std::string& out, Range const& range, Append const& append) {
  bool first = true;
  for (auto const& one : range) {
    if (!first) out += ',';
    first = false;
    append(one);
  }
}

void append_one(std::string& out, text::tokenizer const& tokenizer,
                engine::token_logprob const& one) {
  auto const bytes = tokenizer.token_bytes(one.id);
  out += R"({"token":)";
  append_json_string(out, bytes);
  out += R"(,"logprob":)";
  append_json_number(out, one.logprob);
  out += R"(,"bytes":[)";
  append_list(out, bytes,
              [&](char byte) { append_json_integer(out, static_cast<unsigned char>(byte)); });
  out += ']';
}

/// Different for different bytes.
std::string shown(std::string_view bytes) {
  if (text::repair_utf8(bytes) == bytes) return std::string(bytes);
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "bytes:";
  for (char const c : bytes) {
    auto const byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += hex[byte >> 4U];
    out += hex[byte & 15U];
  }
  return out;
}

}  // namespace

void append_chat_logprobs(std::string& out, text::tokenizer const& tokenizer,
                          std::span<engine::token_logprobs const> tokens) {
  out += R"({"content":[)";
  append_list(out, tokens, [&](engine::token_logprobs const& token) {
    append_one(out, tokenizer, token.chosen);
    out += R"(,"top_logprobs":[)";
    append_list(out, token.top, [&](engine::token_logprob const& one) {
      append_one(out, tokenizer, one);
      out += '}';
    });
    out += "]}";
  });
  out += R"(],"refusal":null})";
}

void append_completion_logprobs(std::string& out, text::tokenizer const& tokenizer,
                                std::span<engine::token_logprobs const> tokens,
                                std::int64_t& offset) {
  auto const bytes_of = [&](engine::token_logprob const& one) {
    return tokenizer.token_bytes(one.id);
  };
  out += R"({"tokens":[)";
  append_list(out, tokens, [&](engine::token_logprobs const& token) {
    append_json_string(out, std::string_view(shown(bytes_of(token.chosen))));
  });
  out += R"(],"token_logprobs":[)";
  append_list(out, tokens, [&](engine::token_logprobs const& token) {
    append_json_number(out, token.chosen.logprob);
  });
  out += R"(],"top_logprobs":)";
  bool const has_top =
      std::ranges::any_of(tokens, [](auto const& one) { return !one.top.empty(); });
  if (has_top) {
    out += '[';
    append_list(out, tokens, [&](engine::token_logprobs const& token) {
      out += '{';
      append_list(out, token.top, [&](engine::token_logprob const& one) {
        append_json_string(out, std::string_view(shown(bytes_of(one))));
        out += ':';
        append_json_number(out, one.logprob);
      });
      out += '}';
    });
    out += ']';
  } else {
    out += "null";
  }
  out += R"(,"text_offset":[)";
  append_list(out, tokens, [&](engine::token_logprobs const& token) {
    append_json_integer(out, offset);
    if (tokenizer.is_special(token.chosen.id)) return;  // not printed
    offset += std::ranges::count_if(bytes_of(token.chosen), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
  });
  out += "]}";
}

}  // namespace qwen38::api

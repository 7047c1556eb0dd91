// SPDX-License-Identifier: Apache-2.0
// Fuzz target over tokenizer.json files. Links with libFuzzer, or with fuzz_corpus_replay.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/error.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace {

using qwen38::text::special_policy;
using qwen38::text::tokenizer;

void require(bool holds) {
  if (!holds) std::abort();
}

// Whatever file is taken must keep the promises of tokenizer.hpp.
void use(tokenizer const& source) {
  std::string text = "It's <think>12 \xE4\xBD\xA0 e\xCC\x81\xFF</think>\n\n  zz invoice";
  for (std::int32_t id = 0; id < source.vocab_size(); ++id) {
    require(!source.token_bytes(id).empty());
    require(source.token_to_id(source.token_bytes(id)).has_value());
    if (id % 7 == 0 && text.size() < 4096) text += source.token_bytes(id);
  }
  std::string const repaired = qwen38::text::repair_utf8(text);
  auto const as_text = source.encode(text, special_policy::as_text);
  for (std::int32_t const id : as_text) require(!source.is_special(id));
  require(source.decode(as_text, true) == qwen38::text::nfc(repaired));
  auto const parsed = source.encode(text);
  require(qwen38::text::nfc(source.decode(parsed, false)) == qwen38::text::nfc(repaired));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const input(reinterpret_cast<char const*>(data), size);
  try {
    use(tokenizer::from_json(input, "fuzz"));
  } catch (qwen38::error const& failure) {
    std::string_view const sentence = failure.what();
    require(sentence.starts_with("fuzz: ") && sentence.find('\n') == std::string_view::npos);
  }
  return 0;
}

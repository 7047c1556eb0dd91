// SPDX-License-Identifier: Apache-2.0
// Fuzz target over JSON schemas: what is served reads JSON only, what is not is refused in a
// sentence. Links with libFuzzer, or with fuzz_corpus_replay.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "grammar_support.hpp"
#include "support/error.hpp"
#include "text/answer_grammar.hpp"

namespace {

using namespace qwen38;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const schema = nlohmann::ordered_json::parse(data, data + size, nullptr, false);
  if (schema.is_discarded()) return 0;
  try {
    text::testing::reader all(text::make_json_grammar(&schema, false));
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      std::mt19937_64 random(seed);
      auto const made = all.random_text(random, 200);
      require(!made || nlohmann::json::accept(*made));
    }
  } catch (error const& refused) {
    require(std::string_view(refused.what()).ends_with('.'));
    require(refused.kind() == error_kind::invalid_argument ||
            refused.kind() == error_kind::unsupported);
  }
  return 0;
}

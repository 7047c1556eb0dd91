// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.hpp"

namespace qwen38::text {

/// What a tokenizer.json says, checked: ids 0 .. tokens.size() - 1 all have a token, and every byte
/// has one.
struct tokenizer_data {
  struct token {
    std::string bytes;     ///< what it prints; an added token prints its own text
    bool added = false;    ///< found in raw text as a whole, never made by merges
    bool special = false;  ///< added, and hidden by skip_special
  };
  std::vector<token> tokens;
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<bpe::merge> merges;
};

/// Reads the tokenizer.json format of Hugging Face tokenizers as Qwen3.8 uses it: model BPE over
/// the byte alphabet, normalizer NFC, pre-tokenizer split_pattern then ByteLevel, added tokens
/// without strip or word flags. Anything else is refused rather than approximated. `name` stands in
/// messages. Throws qwen38::error: corrupt_data (broken or contradictory), unsupported (another
/// kind of tokenizer).
[[nodiscard]] tokenizer_data parse_tokenizer_json(std::string_view json, std::string const& name);

/// The same with the further added tokens that a tokenizer_config.json lists in
/// added_tokens_decoder: Qwen3.6 has seven of its 33 only there.
[[nodiscard]] tokenizer_data parse_tokenizer_json(std::string_view json, std::string const& name,
                                                  std::string_view config_json,
                                                  std::string const& config_name);

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "text/pretokenizer.hpp"
#include "text/tokenizer.hpp"
#include "text/utf8.hpp"

namespace qwen38::test {

inline constexpr std::int32_t endoftext_id = 256;
inline constexpr std::int32_t im_start_id = 257;
inline constexpr std::int32_t im_end_id = 258;
inline constexpr std::int32_t think_id = 259;
inline constexpr std::int32_t think_end_id = 260;
inline constexpr std::int32_t byte_vocab_size = 261;

/// A tokenizer without merges: a byte is its own id, Qwen's control tokens follow. Prompts can be
/// read off their ids.
inline text::tokenizer make_byte_tokenizer() {
  nlohmann::json vocabulary = nlohmann::json::object();
  char32_t next = 0x100;  // GPT-2's alphabet: unprintable bytes stand as U+0100 onwards
  for (char32_t byte = 0; byte < 256; ++byte) {
    bool const printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    std::string key;
    text::append_utf8(printable ? byte : next++, key);
    vocabulary[key] = static_cast<int>(byte);
  }
  nlohmann::json added = nlohmann::json::array();
  int id = endoftext_id;
  for (char const* const content :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
    added.push_back({{"id", id++}, {"content", content}, {"special", content[1] == '|'}});
  }
  nlohmann::json const root = {
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", std::string(text::split_pattern)}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", added},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return text::tokenizer::from_json(root.dump(), "byte tokenizer");
}

}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
#include "text/byte_vocabulary.hpp"

#include <nlohmann/json.hpp>

#include "text/pretokenizer.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {

std::string byte_tokenizer_json() {
  nlohmann::json vocabulary = nlohmann::json::object();
  char32_t next = 0x100;  // GPT-2's alphabet: unprintable bytes stand as U+0100 onwards
  for (char32_t byte = 0; byte < 256; ++byte) {
    bool const printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    std::string key;
    append_utf8(printable ? byte : next++, key);
    vocabulary[key] = static_cast<int>(byte);
  }
  nlohmann::json added = nlohmann::json::array();
  int id = 256;
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
           {"pattern", {{"Regex", std::string(split_pattern)}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", added},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return root.dump();
}

}  // namespace qwen38::text

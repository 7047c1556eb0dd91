// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "text/pretokenizer.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

using nlohmann::json;

// Far above any vocabulary; bounds what a broken id can make us allocate.
constexpr std::int64_t max_tokens = std::int64_t{1} << 22;

class reader {
 public:
  reader(std::string_view text, std::string const& name) : name_(name) { root_ = parse(text); }

  /// Before read().
  void read_config(std::string_view text, std::string const& name) {
    std::string const own_name = std::exchange(name_, name);
    json const config = parse(text);
    json const& decoder = optional_member(config, "added_tokens_decoder");
    if (!decoder.is_null() && !decoder.is_object())
      corrupt("added_tokens_decoder must be an object of id to token");
    for (auto const& [id, token] : decoder.items()) {
      if (!token.is_object()) corrupt("added token " + json(id).dump() + " must be an object");
      json with_id = token;
      with_id["id"] = json::parse(id, nullptr, /*allow_exceptions=*/false);
      if (with_id["id"].is_discarded())
        corrupt("added token " + json(id).dump() + " has no number");
      configured_.push_back(std::move(with_id));
    }
    name_ = own_name;
    config_name_ = name;
  }

  tokenizer_data read() {
    check_pipeline();
    json const& model = member(root_, "model");
    check_model(model);
    json const& added = optional_member(root_, "added_tokens");
    if (!added.is_null() && !added.is_array()) corrupt("added_tokens must be an array");
    for (json const& token : added) read_added(token);
    read_configured();
    read_vocabulary(member(model, "vocab"));
    check_ids();
    read_merges(member(model, "merges"));
    return std::move(data_);
  }

 private:
  [[noreturn]] void corrupt(std::string const& what) const {
    throw error(error_kind::corrupt_data, name_ + ": " + what);
  }
  json parse(std::string_view text) const {
    json out = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (out.is_discarded()) corrupt("is not valid JSON");
    if (!out.is_object()) corrupt("must hold a JSON object");
    return out;
  }
  [[noreturn]] void unsupported(std::string const& what) const {
    throw error(error_kind::unsupported, name_ + ": " + what);
  }

  json const& member(json const& object, char const* key) const {
    if (!object.is_object() || !object.contains(key)) corrupt(std::string(key) + " is missing");
    return object.at(key);
  }
  /// null where the key is absent
  static json const& optional_member(json const& object, char const* key) {
    static json const none;
    return object.is_object() && object.contains(key) ? object.at(key) : none;
  }
  static std::string type_of(json const& part) {
    json const& type = optional_member(part, "type");
    return type.is_string() ? type.get<std::string>() : "";
  }
  static bool is_empty_string(json const& value) {
    return value.is_string() && value.get_ref<std::string const&>().empty();
  }
  bool flag(json const& object, char const* key, bool fallback) const {
    json const& value = optional_member(object, key);
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) corrupt(std::string(key) + " must be true or false");
    return value.get<bool>();
  }

  void check_pipeline() const {
    if (type_of(member(root_, "normalizer")) != "NFC") unsupported("normalizer must be NFC");
    json const& pre = member(root_, "pre_tokenizer");
    json const& steps = optional_member(pre, "pretokenizers");
    if (type_of(pre) != "Sequence" || !steps.is_array() || steps.size() != 2 ||
        type_of(steps[0]) != "Split" || type_of(steps[1]) != "ByteLevel") {
      unsupported("pre_tokenizer must be a Sequence of Split and ByteLevel");
    }
    json const& pattern = optional_member(optional_member(steps[0], "pattern"), "Regex");
    if (pattern != split_pattern) {
      unsupported(
          "pre_tokenizer splits by another pattern than Qwen3.8's, which is the only one known: " +
          pattern.dump());
    }
    if (optional_member(steps[0], "behavior") != "Isolated" || flag(steps[0], "invert", false)) {
      unsupported("pre_tokenizer's Split must be Isolated and not inverted");
    }
    if (flag(steps[1], "add_prefix_space", true) || flag(steps[1], "use_regex", true)) {
      unsupported("pre_tokenizer's ByteLevel must have add_prefix_space and use_regex false");
    }
    json const& post = optional_member(root_, "post_processor");
    if (!post.is_null() && type_of(post) != "ByteLevel") {
      unsupported(
          "post_processor must be null or ByteLevel, since Qwen3.8 adds no tokens of its own");
    }
    if (type_of(member(root_, "decoder")) != "ByteLevel") unsupported("decoder must be ByteLevel");
  }

  void check_model(json const& model) const {
    json const& type = optional_member(model, "type");
    if (!model.is_object() || (!type.is_null() && type != "BPE")) unsupported("model must be BPE");
    for (char const* key : {"byte_fallback", "ignore_merges"}) {
      if (flag(model, key, false)) unsupported(std::string("model.") + key + " must be false");
    }
    for (char const* key :
         {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      json const& value = optional_member(model, key);
      if (!value.is_null() && !is_empty_string(value)) {
        unsupported(std::string("model.") + key + " must be null");
      }
    }
  }

  std::int32_t checked_id(json const& id, std::string const& token) const {
    if (!id.is_number_integer() || id < 0 || id >= max_tokens) {
      corrupt("token " + json(token).dump() + " has id " + id.dump() + ", expected 0 to " +
              std::to_string(max_tokens - 1));
    }
    return id.get<std::int32_t>();
  }

  void put(std::int32_t id, tokenizer_data::token token) {
    auto const index = static_cast<std::size_t>(id);
    if (index >= data_.tokens.size()) {
      data_.tokens.resize(index + 1);
      present_.resize(index + 1);
    }
    if (present_[index]) corrupt("id " + std::to_string(id) + " is given to two tokens");
    present_[index] = true;
    data_.tokens[index] = std::move(token);
  }

  void read_added(json const& token) {
    json const& content = member(token, "content");
    if (!content.is_string() || is_empty_string(content)) {
      corrupt("an added token's content must be a non-empty string");
    }
    auto const text = content.get<std::string>();
    for (char const* key : {"single_word", "lstrip", "rstrip", "normalized"}) {
      if (flag(token, key, false)) {
        unsupported("added token " + content.dump() + " must have " + key + " false");
      }
    }
    std::int32_t const id = checked_id(member(token, "id"), text);
    if (!added_ids_.emplace(text, id).second)
      corrupt("added token " + content.dump() + " stands twice");
    put(id, {text, true, flag(token, "special", false)});
  }

  /// Most of them stand in tokenizer.json too; the flags there count.
  void read_configured() {
    std::string const own_name = std::exchange(name_, config_name_);
    for (json const& token : configured_) {
      json const& content = member(token, "content");
      auto const known =
          content.is_string() ? added_ids_.find(content.get<std::string>()) : added_ids_.end();
      if (known == added_ids_.end()) {
        read_added(token);
      } else if (token.at("id") != known->second) {
        corrupt("added token " + content.dump() + " has another id in tokenizer.json");
      }
    }
    name_ = own_name;
  }

  /// The bytes that a vocabulary key stands for: GPT-2's alphabet writes printable Latin-1 bytes as
  /// themselves and the other 68 as U+0100 onwards.
  std::string bytes_of(std::string const& key) const {
    std::string bytes;
    for (std::size_t position = 0; position < key.size();) {
      char32_t const scalar = next_scalar(key, position);
      auto const found = alphabet_.find(scalar);
      if (found == alphabet_.end()) {
        corrupt("vocabulary entry " + json(key).dump() +
                " has a character outside the byte alphabet");
      }
      bytes.push_back(static_cast<char>(found->second));
    }
    return bytes;
  }

  static std::unordered_map<char32_t, unsigned char> make_alphabet() {
    std::unordered_map<char32_t, unsigned char> alphabet;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      bool const printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      alphabet.emplace(printable ? byte : next++, static_cast<unsigned char>(byte));
    }
    return alphabet;
  }

  void read_vocabulary(json const& vocabulary) {
    if (!vocabulary.is_object()) corrupt("model.vocab must be an object of token to id");
    for (auto const& [key, id] : vocabulary.items()) {
      std::int32_t const number = checked_id(id, key);
      if (auto const added = added_ids_.find(key); added != added_ids_.end()) {
        if (added->second == number) continue;
        corrupt("added token " + json(key).dump() + " has another id in model.vocab");
      }
      std::string bytes = bytes_of(key);
      if (bytes.empty()) corrupt("model.vocab has an empty token");
      base_ids_.emplace(bytes, number);
      put(number, {std::move(bytes)});
    }
  }

  void check_ids() {
    for (std::size_t id = 0; id < present_.size(); ++id) {
      if (!present_[id])
        corrupt("id " + std::to_string(id) + " has no token, though higher ids have one");
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      auto const found = base_ids_.find(std::string(1, static_cast<char>(byte)));
      if (found == base_ids_.end()) corrupt("byte " + std::to_string(byte) + " has no token");
      data_.byte_ids[byte] = found->second;
    }
  }

  std::int32_t base_id(std::string const& bytes, std::size_t rank) const {
    auto const found = base_ids_.find(bytes);
    if (found == base_ids_.end()) {
      corrupt("merge " + std::to_string(rank) + " uses or makes a token that model.vocab lacks");
    }
    return found->second;
  }

  void read_merges(json const& merges) {
    if (!merges.is_array()) corrupt("model.merges must be an array");
    std::unordered_set<std::uint64_t> seen;
    for (json const& merge : merges) {
      std::size_t const rank = data_.merges.size();
      auto const [left, right] = split_merge(merge, rank);
      std::string const left_bytes = bytes_of(left);
      std::string const right_bytes = bytes_of(right);
      bpe::merge const made{base_id(left_bytes, rank), base_id(right_bytes, rank),
                            base_id(left_bytes + right_bytes, rank)};
      auto const pair =
          static_cast<std::uint64_t>(made.left) << 32 | static_cast<std::uint32_t>(made.right);
      if (!seen.insert(pair).second) corrupt("merge " + std::to_string(rank) + " stands twice");
      data_.merges.push_back(made);
    }
  }

  /// "A B" or ["A", "B"]; the byte alphabet has no blank.
  std::pair<std::string, std::string> split_merge(json const& merge, std::size_t rank) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (merge.is_string()) {
      auto const both = merge.get<std::string>();
      auto const blank = both.find(' ');
      if (blank != std::string::npos) return {both.substr(0, blank), both.substr(blank + 1)};
    }
    corrupt("merge " + std::to_string(rank) + " must be \"A B\" or [\"A\", \"B\"]");
  }

  std::string name_;
  std::string config_name_;
  json root_;
  std::vector<json> configured_;  // added tokens of tokenizer_config.json, each with its id
  tokenizer_data data_;
  std::vector<bool> present_;
  std::unordered_map<std::string, std::int32_t> added_ids_;
  std::unordered_map<std::string, std::int32_t> base_ids_;  // by bytes; added tokens are not in it
  std::unordered_map<char32_t, unsigned char> alphabet_ = make_alphabet();
};

}  // namespace

tokenizer_data parse_tokenizer_json(std::string_view json, std::string const& name) {
  return reader(json, name).read();
}

tokenizer_data parse_tokenizer_json(std::string_view json, std::string const& name,
                                    std::string_view config_json, std::string const& config_name) {
  reader both(json, name);
  both.read_config(config_json, config_name);
  return both.read();
}

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#include "bench/made_up_vocabulary.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "text/byte_vocabulary.hpp"

namespace qwen38::bench {
namespace {

using json = nlohmann::json;

class builder {
 public:
  explicit builder(std::int32_t size)
      : size_(size), file_(json::parse(text::byte_tokenizer_json())), keys_(256) {
    for (auto const& [key, id] : file_["model"]["vocab"].items())
      keys_[id.get<std::size_t>()] = key;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      lengths_.push_back(1);
      seen_.insert(keys_[i]);
    }
  }

  [[nodiscard]] std::size_t room() const {
    return static_cast<std::size_t>(size_) - keys_.size() - file_["added_tokens"].size();
  }

  /// Returns the id of a + b, new or not.
  std::size_t merged(std::size_t a, std::size_t b) {
    std::string key = keys_[a] + keys_[b];
    if (!seen_.insert(key).second) return file_["model"]["vocab"][key].get<std::size_t>();
    auto const id = keys_.size();
    file_["model"]["vocab"][key] = id;
    file_["model"]["merges"].push_back(keys_[a] + " " + keys_[b]);
    keys_.push_back(std::move(key));
    lengths_.push_back(lengths_[a] + lengths_[b]);
    return id;
  }

  /// The characters `first` to `last`, all of `length` bytes in UTF-8.
  std::vector<std::size_t> characters(char32_t first, char32_t last, int length) {
    std::vector<std::size_t> out;
    for (char32_t c = first; c <= last; ++c) {
      auto const tail = [&](int shift) { return std::size_t{0x80} | (c >> shift & 0x3F); };
      out.push_back(length == 2 ? merged(std::size_t{0xC0} | c >> 6, tail(0))
                                : merged(merged(std::size_t{0xE0} | c >> 12, tail(6)), tail(0)));
    }
    return out;
  }

  /// Adds `count` tokens made of one of each, of up to `longest` bytes, earlier ones more often.
  /// What is added to `into` may be `first` or `second`.
  void grow(std::vector<std::size_t> const& first, std::vector<std::size_t> const& second,
            std::vector<std::size_t>& into, int longest, std::size_t count) {
    auto const pick = [&](std::vector<std::size_t> const& from) {
      double const u = static_cast<double>(random_() >> 11U) * 0x1p-53;
      return from[static_cast<std::size_t>(u * u * static_cast<double>(from.size()))];
    };
    while (count > 0) {
      auto const a = pick(first);
      auto const b = pick(second);
      if (lengths_[a] + lengths_[b] > longest || seen_.contains(keys_[a] + keys_[b])) continue;
      into.push_back(merged(a, b));
      --count;
    }
  }

  std::string finish() {
    auto id = keys_.size();
    for (json& added : file_["added_tokens"]) added["id"] = id++;
    return file_.dump();
  }

 private:
  std::int32_t size_;
  json file_;
  std::vector<std::string> keys_;  // by id, in the alphabet of the file
  std::vector<int> lengths_;       // in bytes
  std::unordered_set<std::string> seen_;
  std::mt19937_64 random_{38};
};

}  // namespace

std::string made_up_vocabulary(std::int32_t size) {
  if (size < 30'000) {
    throw error(error_kind::invalid_argument,
                "A made-up vocabulary has at least 30000 ids, not " + std::to_string(size) + ".");
  }
  auto const bytes_of = [](std::string_view text) {
    return std::vector<std::size_t>(text.begin(), text.end());
  };
  builder out(size);
  auto cjk = out.characters(0x4E00, 0x62FF, 3);
  auto european = out.characters(0x0391, 0x03C9, 2);
  auto const cyrillic = out.characters(0x0410, 0x044F, 2);
  european.insert(european.end(), cyrillic.begin(), cyrillic.end());
  auto latin = bytes_of("etaoinsrhldcumfpgwybvkxjqzETAOINSRHLDCUMFPGWYBVKXJQZ");
  auto signs = bytes_of("\"_.,:;=(){}[]'<>/\\-+*");
  auto const spaces = bytes_of(" ");
  auto const fronts = bytes_of("(_.\"-[/<");
  std::vector<std::size_t> fronted;
  // Split as a pre-tokenizer splits: letters of one script, with one space or sign in front, or
  // signs.
  auto const share = out.room() / 40;
  out.grow(latin, latin, latin, 12, 10 * share);
  out.grow(spaces, latin, fronted, 16, 8 * share);
  out.grow(fronts, latin, fronted, 16, 2 * share);
  out.grow(cjk, cjk, cjk, 12, 9 * share);
  out.grow(european, european, european, 14, 5 * share);
  out.grow(spaces, european, fronted, 16, 4 * share);
  out.grow(spaces, signs, fronted, 16, signs.size());
  out.grow(signs, signs, signs, 16, out.room());
  return out.finish();
}

}  // namespace qwen38::bench

// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "support/error.hpp"
#include "text/pretokenizer.hpp"
#include "text/text_file.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

constexpr std::size_t max_text_bytes = std::size_t{1} << 30;

std::string read_tokenizer_json(std::filesystem::path const& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw error(error_kind::not_found,
                path.string() + ": no such file; a tokenizer.json was expected");
  }
  return read_text(path);
}

}  // namespace

tokenizer tokenizer::from_file(std::filesystem::path const& path) {
  return from_json(read_tokenizer_json(path), path.string());
}

tokenizer tokenizer::from_checkpoint(std::filesystem::path const& directory) {
  auto const path = directory / "tokenizer.json";
  auto const config = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(config)) return from_file(path);
  return tokenizer(parse_tokenizer_json(read_tokenizer_json(path), path.string(), read_text(config),
                                        config.string()));
}

tokenizer tokenizer::from_json(std::string_view json, std::string const& name) {
  return tokenizer(parse_tokenizer_json(json, name));
}

tokenizer::tokenizer(tokenizer_data data)
    : tokens_(std::move(data.tokens)), bpe_(data.byte_ids, data.merges) {
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    auto const id = static_cast<std::int32_t>(i);
    std::string const& bytes = tokens_[i].bytes;
    if (tokens_[i].added) {
      ids_.insert_or_assign(bytes, id);
      added_[static_cast<unsigned char>(bytes[0])].push_back(id);
    } else {
      ids_.emplace(bytes, id);
    }
  }
  for (auto& candidates : added_) {
    std::sort(candidates.begin(), candidates.end(), [&](std::int32_t a, std::int32_t b) {
      return token_bytes(a).size() > token_bytes(b).size();
    });
  }
}

std::vector<std::int32_t> tokenizer::encode(std::string_view text, special_policy policy) const {
  text_piece const piece{text, policy};
  return encode(std::span(&piece, 1));
}

std::vector<std::int32_t> tokenizer::encode(std::span<text_piece const> pieces) const {
  struct range {
    std::size_t begin;
    std::size_t end;
  };
  std::string joined;
  std::vector<range> parsed;  // neighbouring `parse` pieces make one range
  for (text_piece const& piece : pieces) {
    std::size_t const begin = joined.size();
    if (piece.text.size() > max_text_bytes - begin) {
      throw error(error_kind::invalid_argument, "a text to tokenise must be shorter than 1 GiB");
    }
    joined += repair_utf8(piece.text);
    if (piece.policy == special_policy::as_text) continue;
    if (!parsed.empty() && parsed.back().end == begin) {
      parsed.back().end = joined.size();
    } else {
      parsed.push_back({begin, joined.size()});
    }
  }

  std::vector<std::int32_t> ids;
  bpe::scratch work;
  std::string_view const text = joined;
  std::size_t done = 0;
  for (range const& r : parsed) {
    for (std::size_t i = r.begin; i < r.end;) {
      auto const* const added = added_at(text.substr(i, r.end - i));
      if (added == nullptr) {
        ++i;
        continue;
      }
      encode_ordinary(text.substr(done, i - done), work, ids);
      ids.push_back(static_cast<std::int32_t>(added - tokens_.data()));
      i += added->bytes.size();
      done = i;
    }
  }
  encode_ordinary(text.substr(done), work, ids);
  return ids;
}

tokenizer_data::token const* tokenizer::added_at(std::string_view rest) const noexcept {
  for (std::int32_t const id : added_[static_cast<unsigned char>(rest[0])]) {
    auto const& token = tokens_[static_cast<std::size_t>(id)];
    if (rest.substr(0, token.bytes.size()) == token.bytes) return &token;
  }
  return nullptr;
}

void tokenizer::encode_ordinary(std::string_view valid, bpe::scratch& work,
                                std::vector<std::int32_t>& out) const {
  std::string const normal = nfc(valid);
  for (std::string_view const word : pretokenize(normal)) bpe_.encode(word, work, out);
}

std::string tokenizer::decode(std::span<std::int32_t const> ids, bool skip_special) const {
  std::string out;
  utf8_gate gate;
  for (std::int32_t const id : ids) {
    std::string_view const bytes = token_bytes(id);
    if (!skip_special || !is_special(id)) gate.push(bytes, out);
  }
  gate.finish(out);
  return out;
}

std::string_view tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw error(
        error_kind::invalid_argument,
        "token id " + std::to_string(id) + " is outside 0 to " + std::to_string(vocab_size() - 1));
  }
  return tokens_[static_cast<std::size_t>(id)].bytes;
}

bool tokenizer::is_special(std::int32_t id) const noexcept {
  return id >= 0 && id < vocab_size() && tokens_[static_cast<std::size_t>(id)].special;
}

std::optional<std::int32_t> tokenizer::token_to_id(std::string_view bytes) const {
  auto const found = ids_.find(bytes);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe.hpp"
#include "text/tokenizer_json.hpp"

namespace qwen38::text {

/// Whether the texts of added tokens (<|im_end|>, <think>, ...) become those tokens or stay text
/// like any other.
enum class special_policy { parse, as_text };

struct text_piece {
  std::string_view text;
  special_policy policy;
};

/// Byte-level BPE of a tokenizer.json. Immutable after construction; every member may be called
/// from many threads.
class tokenizer {
 public:
  /// Throws qwen38::error: not_found, io, and what parse_tokenizer_json() throws.
  [[nodiscard]] static tokenizer from_file(std::filesystem::path const& path);
  /// tokenizer.json of a checkpoint, and the added tokens that only its tokenizer_config.json
  /// lists, if it has one.
  [[nodiscard]] static tokenizer from_checkpoint(std::filesystem::path const& directory);
  /// `name` stands in messages.
  [[nodiscard]] static tokenizer from_json(std::string_view json, std::string const& name);

  /// Ids of `text`, equal to those of Hugging Face tokenizers with special_policy::parse.
  /// Ill-formed UTF-8 is read as U+FFFD, one per maximal subpart. Time O(n log n). Throws
  /// invalid_argument from 1 GiB on.
  [[nodiscard]] std::vector<std::int32_t> encode(
      std::string_view text, special_policy policy = special_policy::parse) const;

  /// Ids of the joined pieces. Normalisation, word borders and merges see one text, so that the
  /// cuts leave no trace; only added tokens are found within neighbouring `parse` pieces alone.
  [[nodiscard]] std::vector<std::int32_t> encode(std::span<text_piece const> pieces) const;

  /// Text of ids as valid UTF-8 (U+FFFD per maximal ill-formed subpart). skip_special leaves out
  /// tokens that is_special() holds for. Throws invalid_argument for an id outside 0 ..
  /// vocab_size() - 1.
  [[nodiscard]] std::string decode(std::span<std::int32_t const> ids, bool skip_special) const;

  /// Bytes of one token; not always whole UTF-8. Valid as long as the tokenizer. Throws like
  /// decode().
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;

  /// The file's `special` flag: true for control tokens, false for <think>, <tool_call> and
  /// ordinary ones.
  [[nodiscard]] bool is_special(std::int32_t id) const noexcept;

  /// The token whose bytes are exactly `bytes`, an added one first.
  [[nodiscard]] std::optional<std::int32_t> token_to_id(std::string_view bytes) const;

  /// Ids that have a text; a model may have more rows than that.
  [[nodiscard]] std::int32_t vocab_size() const noexcept {
    return static_cast<std::int32_t>(tokens_.size());
  }

 private:
  explicit tokenizer(tokenizer_data data);
  [[nodiscard]] tokenizer_data::token const* added_at(std::string_view rest) const noexcept;
  void encode_ordinary(std::string_view valid, bpe::scratch& work,
                       std::vector<std::int32_t>& out) const;

  struct bytes_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const noexcept {
      return std::hash<std::string_view>{}(bytes);
    }
  };

  std::vector<tokenizer_data::token> tokens_;
  std::unordered_map<std::string, std::int32_t, bytes_hash, std::equal_to<>> ids_;
  // By first byte, longest first.
  std::array<std::vector<std::int32_t>, 256> added_;
  bpe bpe_;
};

}  // namespace qwen38::text

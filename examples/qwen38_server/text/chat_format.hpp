// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace qwen38::text {

/// The chat templates that can be rendered.
enum class chat_format { qwen38, qwen36 };

/// "qwen3.8" or "qwen3.6".
[[nodiscard]] std::string_view chat_format_name(chat_format format) noexcept;
[[nodiscard]] std::optional<chat_format> parse_chat_format(std::string_view name) noexcept;

/// SHA-256 of the format's template as it was published.
[[nodiscard]] std::string_view chat_template_sha256(chat_format format) noexcept;

/// The format that `chat_template` is the published text of, told by its SHA-256; one newline at
/// its end, which Jinja drops, may be there or not. nullopt for any other text.
[[nodiscard]] std::optional<chat_format> identify_chat_template(std::string_view chat_template);

/// A checkpoint's chat template; `name` says where it stands.
struct chat_template_source {
  std::string text;
  std::string name;
};

/// The template that Hugging Face would render for a checkpoint: chat_template.jinja, else
/// chat_template in tokenizer_config.json (a text, or the entry called "default" of a list).
/// nullopt where the directory has neither. Throws io, and corrupt_data for a tokenizer_config.json
/// that cannot be read as such.
[[nodiscard]] std::optional<chat_template_source> read_chat_template(
    std::filesystem::path const& directory);

/// The format of a checkpoint's chats. A template that identify_chat_template() does not know is
/// refused (unsupported, with the hash found and those expected) unless `assumed` says what to
/// render in its place. Without a template: `assumed`, else qwen38.
[[nodiscard]] chat_format checkpoint_chat_format(std::filesystem::path const& directory,
                                                 std::optional<chat_format> assumed = std::nullopt);

/// The same for a template at hand.
[[nodiscard]] chat_format checked_chat_format(chat_template_source const& source,
                                              std::optional<chat_format> assumed = std::nullopt);

}  // namespace qwen38::text

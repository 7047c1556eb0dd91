// SPDX-License-Identifier: Apache-2.0
#include "text/chat_format.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "text/sha256.hpp"
#include "text/text_file.hpp"

namespace qwen38::text {
namespace {

using nlohmann::json;

struct known_format {
  chat_format format;
  std::string_view name;
  std::string_view sha256;
};

constexpr std::array known_formats = {
    known_format{chat_format::qwen38, "qwen3.8",
                 "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041"},
    known_format{chat_format::qwen36, "qwen3.6",
                 "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259"},
};

known_format const& entry(chat_format format) noexcept {
  return format == chat_format::qwen38 ? known_formats[0] : known_formats[1];
}

[[noreturn]] void corrupt(std::string const& name, std::string const& what) {
  throw error(error_kind::corrupt_data, name + ": " + what);
}

/// A text, or [{"name": "default", "template": text}, ...].
std::optional<std::string> configured_template(json const& config, std::string const& name) {
  auto const found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (json const& one : *found) {
      if (one.is_object() && one.value("name", json()) == "default" &&
          one.value("template", json()).is_string()) {
        return one.at("template").get<std::string>();
      }
    }
  }
  corrupt(name, "chat_template must be a string, or a list with an entry called \"default\"");
}

}  // namespace

std::string_view chat_format_name(chat_format format) noexcept {
  return entry(format).name;
}

std::optional<chat_format> parse_chat_format(std::string_view name) noexcept {
  for (known_format const& known : known_formats) {
    if (known.name == name) return known.format;
  }
  return std::nullopt;
}

std::string_view chat_template_sha256(chat_format format) noexcept {
  return entry(format).sha256;
}

std::optional<chat_format> identify_chat_template(std::string_view chat_template) {
  // The published files end without a newline; editors add one.
  if (chat_template.ends_with('\n')) chat_template.remove_suffix(1);
  std::string const found = sha256_hex(chat_template);
  for (known_format const& known : known_formats) {
    if (known.sha256 == found) return known.format;
  }
  return std::nullopt;
}

std::optional<chat_template_source> read_chat_template(std::filesystem::path const& directory) {
  if (auto const path = directory / "chat_template.jinja"; std::filesystem::exists(path))
    return chat_template_source{read_text(path), path.string()};

  auto const path = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  std::string const name = path.string();
  json const config = json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) corrupt(name, "must hold a JSON object");
  auto text = configured_template(config, name);
  if (!text) return std::nullopt;
  return chat_template_source{std::move(*text), name + ": chat_template"};
}

chat_format checked_chat_format(chat_template_source const& source,
                                std::optional<chat_format> assumed) {
  if (auto const format = identify_chat_template(source.text)) return *format;
  if (assumed) return *assumed;
  std::string expected;
  for (known_format const& known : known_formats) {
    if (!expected.empty()) expected += " or ";
    expected.append(known.sha256).append(" (").append(known.name).append(")");
  }
  throw error(error_kind::unsupported,
              source.name + ": the chat template is not one that is known: found SHA-256 " +
                  sha256_hex(source.text) + ", expected " + expected);
}

chat_format checkpoint_chat_format(std::filesystem::path const& directory,
                                   std::optional<chat_format> assumed) {
  auto const source = read_chat_template(directory);
  return source ? checked_chat_format(*source, assumed) : assumed.value_or(chat_format::qwen38);
}

}  // namespace qwen38::text

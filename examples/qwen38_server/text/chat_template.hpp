// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace qwen38::text {

enum class chat_role { system, user, assistant, tool };

/// The role of a wire name; "developer" is the newer name of system. nullopt for any other.
[[nodiscard]] std::optional<chat_role> parse_chat_role(std::string_view name);

struct tool_call {
  std::string name;
  std::string arguments;  ///< JSON text of an object, as it stands on the wire; "": no parameters
};

struct message {
  chat_role role = chat_role::user;
  std::string content;  ///< text parts already joined; a null content is ""
  std::optional<std::string> reasoning_content;  ///< assistant only
  std::vector<tool_call> tool_calls;             ///< assistant only
};

struct chat_options {
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  std::string reasoning_effort = "xhigh";  ///< xhigh, medium or low; not looked at without thinking
  bool preserve_thinking = true;           ///< false: think blocks only after the last user query
};

/// A piece of a prompt: the template's own text, or what came from the client (contents, reasoning,
/// names, arguments and tool schemas), in which no control token is meant.
struct prompt_segment {
  std::string text;
  bool from_client = false;
};

/// The prompt that Qwen3.8's published template makes of a conversation, byte for byte, in pieces
/// (no two neighbours of one kind, none empty). tools: null or an array, each element printed as it
/// is, keys in their order. Strings are UTF-8; ill-formed parts become U+FFFD. Throws qwen38::error
/// (invalid_argument) where the template raises, and for arguments that are no JSON object; the
/// sentence says which message.
[[nodiscard]] std::vector<prompt_segment> render_segments(std::span<message const> messages,
                                                          nlohmann::ordered_json const& tools,
                                                          chat_options const& options = {});

/// render_segments() as one string.
[[nodiscard]] std::string render(std::span<message const> messages,
                                 nlohmann::ordered_json const& tools,
                                 chat_options const& options = {});

/// Prompt ids of a conversation. With client_text = as_text nothing a client writes becomes a
/// control token, and ids equal those of the joined prompt wherever the client wrote none; with
/// parse they always do (what Hugging Face's apply_chat_template does).
[[nodiscard]] std::vector<std::int32_t> encode_chat(
    tokenizer const& source, std::span<message const> messages, nlohmann::ordered_json const& tools,
    chat_options const& options = {}, special_policy client_text = special_policy::as_text);

}  // namespace qwen38::text

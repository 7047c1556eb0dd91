// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.hpp"
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
  /// Assistant only. Where it is absent, and not merely empty, Qwen3.6 looks for
  /// <think>...</think> in the content.
  std::optional<std::string> reasoning_content;
  std::vector<tool_call> tool_calls;  ///< assistant only
};

struct chat_options {
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  /// xhigh, medium or low; not looked at without thinking, nor by Qwen3.6.
  std::string reasoning_effort = "xhigh";
  bool preserve_thinking = true;  ///< false: think blocks only after the last user query
  chat_format format = chat_format::qwen38;
};

/// What a template does where a request leaves all to it: Qwen3.6 does not preserve thinking.
[[nodiscard]] chat_options default_chat_options(chat_format format);

/// The effort of the template, or "none" for no thinking at all, for a name that clients send: high
/// and max mean xhigh, minimal means low. nullopt for a name that is none of these.
[[nodiscard]] std::optional<std::string_view> parse_reasoning_effort(std::string_view name);

/// The conversation with one system message, at the front, as the templates demand it: the contents
/// of all system messages that are not blank, trimmed, in order, with blank lines between. The
/// order of the others stays; without a system message nothing changes.
[[nodiscard]] std::vector<message> gather_system_messages(std::vector<message> messages);

/// A piece of a prompt: the template's own text, or what came from the client (contents, reasoning,
/// names, arguments and tool schemas), in which no control token is meant.
struct prompt_segment {
  std::string text;
  bool from_client = false;
};

/// The prompt that the published template makes of a conversation, byte for byte, in pieces (no two
/// neighbours of one kind, none empty). tools: null or an array, each element printed as it is,
/// keys in their order. Strings are UTF-8; ill-formed parts become U+FFFD. Numbers in arguments
/// have the range of 64-bit integers and doubles. Throws qwen38::error (invalid_argument) where the
/// template raises, and for arguments that are no JSON object; the sentence says which message.
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

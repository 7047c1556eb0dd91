// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat_template.hpp"

namespace qwen38::api {

/// The `messages` array as the template takes it.
/// - Roles: system, developer (the same), user, assistant, tool. The template wants one system
/// message, at the front:
///   the contents of all system and developer messages are joined there, in order, by blank lines.
/// - content: a string, null, or an array of text parts, which are concatenated.
/// - assistant: reasoning_content (or its other name, reasoning) and tool_calls, whose arguments
/// are JSON text of an
///   object, "" or an object.
/// Throws field_error; anything but text in a content is refused as unsupported.
[[nodiscard]] std::vector<text::message> read_chat_messages(nlohmann::ordered_json const& body);

}  // namespace qwen38::api

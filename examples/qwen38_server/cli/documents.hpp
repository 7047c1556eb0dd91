// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/chat_template.hpp"

namespace qwen38::cli {

/// One task with a known answer, from a JSON Lines file.
struct document {
  std::string id;
  std::string task;
  std::vector<text::message> messages;
  text::chat_options options;
  std::string expected;  ///< JSON text
};

/// Reads a file of a checkpoint's eval folder. Each line is an object with id, task,
/// enable_thinking, reasoning_effort (or null), system (or null), user, expected. Throws
/// qwen38::error that names the line.
std::vector<document> read_documents(std::filesystem::path const& path, text::chat_format format);

/// Whether `answer`, white space around it aside, is JSON equal to the expected value.
bool answers(document const& task, std::string const& answer);

}  // namespace qwen38::cli

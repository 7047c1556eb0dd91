// SPDX-License-Identifier: Apache-2.0
#include "cli/documents.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/error.hpp"

namespace qwen38::cli {
namespace {

using nlohmann::json;

document parse_document(std::string const& line, text::chat_format format) {
  json const fields = json::parse(line);
  document parsed;
  parsed.id = fields.at("id").get<std::string>();
  parsed.task = fields.at("task").get<std::string>();
  parsed.options = text::default_chat_options(format);
  parsed.options.enable_thinking = fields.at("enable_thinking").get<bool>();
  if (json const& effort = fields.at("reasoning_effort"); !effort.is_null()) {
    parsed.options.reasoning_effort = effort.get<std::string>();
  }
  if (json const& system = fields.at("system"); !system.is_null()) {
    parsed.messages.push_back({text::chat_role::system, system.get<std::string>(), {}, {}});
  }
  parsed.messages.push_back({text::chat_role::user, fields.at("user").get<std::string>(), {}, {}});
  parsed.expected = fields.at("expected").dump();
  return parsed;
}

}  // namespace

std::vector<document> read_documents(std::filesystem::path const& path, text::chat_format format) {
  std::ifstream file(path);
  if (!file)
    throw error(error_kind::not_found,
                path.string() + " cannot be read: expected the evaluation documents");
  std::vector<document> documents;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    try {
      documents.push_back(parse_document(line, format));
    } catch (json::exception const& problem) {
      throw error(error_kind::corrupt_data,
                  path.string() + " line " + std::to_string(number) + ": " + problem.what());
    }
  }
  return documents;
}

bool answers(document const& task, std::string const& answer) {
  json const parsed = json::parse(answer, nullptr, false);
  return !parsed.is_discarded() && parsed == json::parse(task.expected);
}

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_revision.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>

namespace qwen38::checkpoint {
namespace {

constexpr std::string_view separator = "--";
constexpr std::string_view models = "models--";

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

/// "owner/name" of "models--owner--name"; "" of anything else.
std::string repository_of(std::string_view folder) {
  if (!folder.starts_with(models)) return {};
  folder.remove_prefix(models.size());
  std::size_t const split = folder.find(separator);
  if (split == std::string_view::npos || split == 0) return {};
  std::string_view const name = folder.substr(split + separator.size());
  return name.empty() ? std::string()
                      : std::string(folder.substr(0, split)) + '/' + std::string(name);
}

}  // namespace

std::optional<hub_revision> find_hub_revision(std::filesystem::path const& directory) {
  std::error_code problem;
  auto const whole = std::filesystem::canonical(directory, problem);
  if (problem) return std::nullopt;
  std::string const last = whole.filename().string();
  auto const folder = whole.parent_path();
  if (folder.filename() == "snapshots" && is_commit(last)) {
    std::string repository = repository_of(folder.parent_path().filename().string());
    if (!repository.empty()) return hub_revision{std::move(repository), last};
  }

  std::optional<hub_revision> found;
  std::filesystem::directory_iterator files(whole / ".cache" / "huggingface" / "download", problem);
  if (problem) return std::nullopt;
  for (auto const& file : files) {
    if (file.path().extension() != ".metadata") continue;
    std::ifstream lines(file.path());
    std::string commit;
    if (!std::getline(lines, commit) || !is_commit(commit)) return std::nullopt;
    if (found && found->commit != commit) return std::nullopt;
    found = hub_revision{{}, commit};
  }
  return found;
}

}  // namespace qwen38::checkpoint

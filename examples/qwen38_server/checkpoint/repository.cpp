// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/repository.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "checkpoint/ignored_tensors.hpp"
#include "checkpoint/json_file.hpp"
#include "checkpoint/message_text.hpp"

namespace qwen38::checkpoint {
namespace {

constexpr char const* single_name = "model.safetensors";
constexpr char const* index_name = "model.safetensors.index.json";

// A shard name may only lead to a file of the checkpoint's own directory.
bool is_plain_file_name(std::string const& name) {
  return name.ends_with(".safetensors") && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::string text_prefix(repository const& tensors) {
  bool const nested = tensors.find("model.language_model.embed_tokens.weight") != nullptr;
  return nested ? "model.language_model." : "model.";
}

repository::repository(std::filesystem::path const& directory, open_mode mode)
    : directory_(directory), mode_(mode) {
  diagnostics strict(diagnostics::mode::strict);
  open(strict);
}

repository::repository(std::filesystem::path const& directory, open_mode mode, diagnostics& report)
    : directory_(directory), mode_(mode) {
  open(report);
}

repository::repository(std::filesystem::path const& directory,
                       std::vector<tensor_view> const& tensors, open_mode mode)
    : directory_(directory), mode_(mode) {
  for (tensor_view const& tensor : tensors) {
    by_name_.emplace(tensor.name, entries_.size());
    entries_.push_back({&tensor, 0});
  }
}

void repository::open(diagnostics& report) {
  std::string const where = directory_.string() + ": ";
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory_, ignored)) {
    report.fail(error_kind::not_found, where + "no such directory");
    return;
  }
  bool const has_single = std::filesystem::exists(directory_ / single_name, ignored);
  bool const has_index = std::filesystem::exists(directory_ / index_name, ignored);
  if (has_single && has_index) {
    report.fail(error_kind::corrupt_data, where + "holds both " + single_name + " and " +
                                              index_name +
                                              ", so it is unclear which one is the model");
  } else if (has_single) {
    add_shard(single_name, nullptr, report);
  } else if (has_index) {
    open_sharded(directory_ / index_name, report);
  } else {
    report.fail(error_kind::not_found,
                where + "holds neither " + single_name + " nor " + index_name);
  }
}

void repository::open_sharded(std::filesystem::path const& index, diagnostics& report) {
  nlohmann::json document;
  try {
    document = read_json_object(index);
  } catch (error const& failure) {
    report.fail(failure.kind(), failure.what());
    return;
  }
  auto const map = document.find("weight_map");
  if (map == document.end() || !map->is_object()) {
    report.fail(
        error_kind::corrupt_data,
        index.string() + ": weight_map is missing or not an object of tensor name to file name");
    return;
  }
  shard_of_name weight_map;
  std::set<std::string> shards;
  std::set<std::string> refused;
  for (auto const& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      report.fail(error_kind::corrupt_data,
                  index.string() + ": weight_map." + in_quotes(tensor) + " is not a file name");
      continue;
    }
    std::string const name = shard.get<std::string>();
    if (name.empty() || !is_plain_file_name(name)) {
      if (refused.insert(name).second) {
        report.fail(error_kind::corrupt_data,
                    index.string() + ": the shard name " + in_quotes(name) +
                        " is not the plain name of a .safetensors file in the same directory");
      }
      continue;
    }
    shards.insert(name);
    weight_map.emplace(tensor, name);
  }
  for (std::string const& shard : shards) add_shard(shard, &weight_map, report);
  check_index(weight_map, report);
  warn_of_unlisted_files(shards, report);

  std::uint64_t total = 0;
  for (entry const& e : entries_) total += e.tensor->byte_count;
  auto const declared =
      document.value(nlohmann::json::json_pointer("/metadata/total_size"), nlohmann::json());
  if (declared.is_number_unsigned() && declared.get<std::uint64_t>() != total) {
    // Some exporters write a wrong sum, and nothing here depends on it.
    report.warn(index.string() + ": metadata.total_size is " + declared.dump() +
                ", but the tensors have " + std::to_string(total) + " bytes");
  }
}

void repository::add_shard(std::string const& name, shard_of_name const* weight_map,
                           diagnostics& report) {
  std::filesystem::path const path = directory_ / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    report.fail(error_kind::not_found,
                path.string() + ": this shard is missing, but the index names it");
    return;
  }
  try {
    shards_.emplace_back(path, mode_);
  } catch (error const& failure) {
    report.fail(failure.kind(), failure.what());
    return;
  }
  shard_names_.push_back(name);
  std::size_t const shard = shards_.size() - 1;
  for (tensor_view const& tensor : shards_.back().tensors()) {
    auto const [place, inserted] = by_name_.emplace(tensor.name, entries_.size());
    if (!inserted) {
      report.fail(error_kind::corrupt_data,
                  path.string() + ": tensor " + in_quotes(tensor.name) + " stands in " +
                      shard_names_[entries_[place->second].shard] + " too");
      continue;
    }
    entries_.push_back({&tensor, shard});
    if (weight_map == nullptr) continue;
    auto const expected = weight_map->find(tensor.name);
    if (expected == weight_map->end()) {
      report.fail(error_kind::corrupt_data, path.string() + ": tensor " + in_quotes(tensor.name) +
                                                " is not listed in the index");
    } else if (expected->second != name) {
      report.fail(error_kind::corrupt_data, path.string() + ": tensor " + in_quotes(tensor.name) +
                                                " is here, but the index places it in " +
                                                in_quotes(expected->second));
    }
  }
}

void repository::warn_of_unlisted_files(std::set<std::string> const& shards,
                                        diagnostics& report) const {
  std::vector<std::string> unlisted;
  std::error_code ignored;
  for (auto const& file : std::filesystem::directory_iterator(directory_, ignored)) {
    std::string name = file.path().filename().string();
    if (name.ends_with(".safetensors") && !shards.contains(name))
      unlisted.push_back(std::move(name));
  }
  if (unlisted.empty()) return;
  std::sort(unlisted.begin(), unlisted.end());
  report.warn(
      directory_.string() + ": " + std::to_string(unlisted.size()) +
      " .safetensors files are not named by the index and not read: " + first_few(unlisted));
}

void repository::check_index(shard_of_name const& weight_map, diagnostics& report) const {
  std::map<std::string, std::vector<std::string>>
      absent;  // by shard, so that each gives one sentence
  for (auto const& [tensor, shard] : weight_map) {
    bool const opened =
        std::find(shard_names_.begin(), shard_names_.end(), shard) != shard_names_.end();
    if (opened && find(tensor) == nullptr) absent[shard].push_back(tensor);
  }
  for (auto& [shard, tensors] : absent) {
    std::sort(tensors.begin(), tensors.end());
    report.fail(error_kind::corrupt_data,
                (directory_ / shard).string() + ": the index names " +
                    std::to_string(tensors.size()) +
                    " tensors that this shard does not hold: " + first_few(tensors));
  }
}

tensor_view const* repository::find(std::string_view name) const noexcept {
  auto const found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : entries_[found->second].tensor;
}

tensor_view const& repository::claim(std::string_view name) {
  auto const found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw error(error_kind::corrupt_data, directory_.string() + ": tensor " + in_quotes(name) +
                                              " is missing from the checkpoint");
  }
  entry& claimed = entries_[found->second];
  claimed.claimed = true;
  return *claimed.tensor;
}

void repository::let_go(std::span<std::byte const> bytes) const noexcept {
  if (!shards_.empty()) release_pages(bytes);
}

void repository::forget_claims() noexcept {
  for (entry& e : entries_) e.claimed = false;
}

std::vector<std::string> repository::unused() const {
  std::set<std::string_view> claimed;
  for (entry const& e : entries_) {
    if (e.claimed) claimed.insert(e.tensor->name);
  }
  auto const is_ignored = [&](std::string const& name) {
    ignored_rule const* const rule = find_ignored_rule(name);
    if (rule == nullptr || rule->match == name_match::prefix) return rule != nullptr;
    std::string_view const base = std::string_view(name).substr(0, name.rfind('.') + 1);
    auto const next = claimed.lower_bound(base);
    return next != claimed.end() && next->starts_with(base);
  };
  std::vector<std::string> names;
  for (entry const& e : entries_) {
    if (!e.claimed && !is_ignored(e.tensor->name)) names.push_back(e.tensor->name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void repository::require_all_used() const {
  std::vector<std::string> const names = unused();
  if (names.empty()) return;
  throw error(error_kind::unsupported,
              directory_.string() + ": " + std::to_string(names.size()) +
                  " tensors of the checkpoint are not used by this model: " + first_few(names));
}

std::vector<tensor_view const*> repository::tensors() const {
  std::vector<tensor_view const*> all;
  all.reserve(entries_.size());
  for (entry const& e : entries_) all.push_back(e.tensor);
  return all;
}

}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "cli/draft_depth.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

namespace qwen38::cli {

bool lexical_cast(std::string const& word, draft_depth& into) {
  if (word == automatic_depth.name()) {
    into = automatic_depth;
    return true;
  }
  int depth = 0;
  auto const [end, problem] = std::from_chars(word.data(), word.data() + word.size(), depth);
  if (problem != std::errc() || end != word.data() + word.size()) return false;
  if (depth < 0 || depth > engine::max_draft_tokens) return false;
  into = {depth, false};
  return true;
}

std::ostream& operator<<(std::ostream& to, draft_depth const& depth) {
  return to << depth.name();
}

CLI::Option* add_depth_flag(CLI::App& app, draft_depth& into, std::string const& what) {
  return app.add_option("--k", into, what + ": 0 to 15, or auto, chosen round by round")
      ->type_name("DEPTH")
      ->capture_default_str();
}

bool has_automatic(std::span<draft_depth const> depths) {
  return std::ranges::any_of(depths, &draft_depth::is_chosen);
}

nlohmann::ordered_json to_json(draft_depth const& depth) {
  if (depth.is_chosen) return depth.name();
  return depth.most;
}

nlohmann::ordered_json rounds_json(
    std::array<std::int64_t, model::round_depths.size()> const& rounds_at) {
  auto all = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < rounds_at.size(); ++i) {
    all[std::to_string(model::round_depths[i])] = rounds_at[i];
  }
  return all;
}

void set_depth(engine::request& wanted, draft_depth const& depth, bool has_mtp) {
  wanted.draft_tokens = has_mtp ? depth.most : 0;
  wanted.chooses_depth = has_mtp && depth.is_chosen;
}

}  // namespace qwen38::cli

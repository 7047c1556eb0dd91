// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine/request.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qwen38::cli {

/// What --k says: "0" to "15", or "auto", where `most` is the largest depth.
struct draft_depth {
  int most = 7;
  bool is_chosen = false;  ///< round by round

  [[nodiscard]] std::string name() const { return is_chosen ? "auto" : std::to_string(most); }
  bool operator==(draft_depth const&) const = default;
};

inline constexpr draft_depth automatic_depth = {engine::max_draft_tokens, true};

/// What CLI11 reads the flag with; false for any other word.
[[nodiscard]] bool lexical_cast(std::string const& word, draft_depth& into);
std::ostream& operator<<(std::ostream& to, draft_depth const& depth);

CLI::Option* add_depth_flag(CLI::App& app, draft_depth& into, std::string const& what);

[[nodiscard]] bool has_automatic(std::span<draft_depth const> depths);

/// A number or "auto".
[[nodiscard]] nlohmann::ordered_json to_json(draft_depth const& depth);
/// {"0": rounds, "1": rounds, ...}
[[nodiscard]] nlohmann::ordered_json rounds_json(
    std::array<std::int64_t, model::round_depths.size()> const& rounds_at);

/// Gives a request this depth; none where the model does not draft.
void set_depth(engine::request& wanted, draft_depth const& depth, bool has_mtp);

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace qpn::bench {

/// What stands beside every number: where and how it was measured.
struct run_context {
  std::string device;
  std::string clocks;
  std::string toolkit;
  std::string command;
};

/// The arguments as a shell would take them.
[[nodiscard]] std::string command_line(int argc, char const* const* argv);

/// A line each, "device: NVIDIA H200, ...".
[[nodiscard]] std::vector<std::string> lines_of(run_context const& context);

/// A list of markdown, a line each.
[[nodiscard]] std::string markdown_of(run_context const& context);

/// Adds device, clocks, toolkit and command to the keys of a row.
void add_context(run_context const& context, nlohmann::ordered_json& row);

/// A time as JSON shows it: to the nanosecond.
[[nodiscard]] double json_us(double us);

/// An array with a row on each line.
[[nodiscard]] std::string array_text(std::vector<nlohmann::ordered_json> const& rows);

/// Throws std::runtime_error with the name of a file that cannot be written.
void write_file(std::string const& name, std::string const& text);

}  // namespace qpn::bench

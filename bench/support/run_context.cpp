// SPDX-License-Identifier: Apache-2.0
#include "support/run_context.hpp"

#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace qpn::bench {

namespace {

/// A word of a shell; quoted where it holds more than the plainest letters.
std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/%@";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (char const letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string command_line(int argc, char const* const* argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    if (i != 0) line += ' ';
    line += shell_word(argv[i]);
  }
  return line;
}

std::vector<std::string> lines_of(run_context const& context) {
  return {"device: " + context.device, "clocks: " + context.clocks, "toolkit: " + context.toolkit,
          "command: " + context.command};
}

std::string markdown_of(run_context const& context) {
  return "- device: " + context.device + "\n- clocks: " + context.clocks +
         "\n- toolkit: " + context.toolkit + "\n- command: `" + context.command + "`\n";
}

void add_context(run_context const& context, nlohmann::ordered_json& row) {
  row["device"] = context.device;
  row["clocks"] = context.clocks;
  row["toolkit"] = context.toolkit;
  row["command"] = context.command;
}

double json_us(double us) {
  return std::round(us * 1e3) / 1e3;
}

std::string array_text(std::vector<nlohmann::ordered_json> const& rows) {
  std::string text = "[";
  for (nlohmann::ordered_json const& row : rows) {
    text += (text.size() > 1 ? ",\n  " : "\n  ") + row.dump();
  }
  return text + "\n]\n";
}

void write_file(std::string const& name, std::string const& text) {
  std::ofstream file(name);
  file << text;
  if (!file.flush()) throw std::runtime_error(name + " cannot be written");
}

}  // namespace qpn::bench

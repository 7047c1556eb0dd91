// SPDX-License-Identifier: Apache-2.0
#include "gemm_tune/header.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "support/text.hpp"

namespace qpn::bench::tune {

namespace {

constexpr std::size_t line_width = 100;

std::string choice_text(gemm_choice choice) {
  std::string text = "gemm_method::";
  text += detail::gemm_method_names[static_cast<int>(choice.method)];
  int const fields[] = {choice.rows, choice.groups, choice.ranks, choice.tail_ranks,
                        choice.registers};
  std::size_t used = std::size(fields);
  while (used > 0 && fields[used - 1] == 0) --used;
  for (std::size_t i = 0; i < used; ++i) text += ", " + std::to_string(fields[i]);
  return "{" + text + "}";
}

std::string row_text(gemm_tuning_row const& row) {
  std::string text = std::string("    {format_id::") + to_string(row.format);
  for (std::int64_t const value : {row.n, row.k, row.first_m, row.last_m}) {
    text += ", " + std::to_string(value);
  }
  return text + ", " + choice_text(row.choice) + "},";
}

/// The words of a comment in lines that are not too long.
std::string comment_text(std::string const& words) {
  std::istringstream input(words);
  std::string text;
  std::string line = "//";
  for (std::string word; input >> word;) {
    if (line.size() + 1 + word.size() > line_width) {
      text += line + "\n";
      line = "//  ";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

}  // namespace

std::vector<table_line> table_lines(report const& measured) {
  std::vector<table_line> lines;
  for (tuned_call const& call : measured.calls) {
    if (!call.is_worth_a_row()) continue;
    lines.push_back({call.row(), fixed(-100.0 * call.gain(), 1) + " %"});
  }
  return lines;
}

std::string array_name(std::string const& file) {
  std::size_t const folder = file.rfind('/');
  std::string const base = folder == std::string::npos ? file : file.substr(folder + 1);
  std::string const name = base.substr(0, base.find('.'));
  bool const letters = std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_';
  });
  bool const first = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
  return letters && first ? name : std::string();
}

std::string header_text(std::string const& name, run_context const& context,
                        std::vector<table_line> const& lines) {
  std::string text =
      "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include "
      "\"qpn/gemm_choice.hpp\"\n\n" +
      comment_text(
          "Written by gemm_tune (docs/gemm_tune.md). Behind each row: the change of the "
          "time of the rules at its last m.");
  for (std::string const& line : lines_of(context)) text += comment_text(line);
  text += "\nnamespace qpn {\n\ninline constexpr gemm_tuning_row " + name + "[] = {\n";
  std::size_t width = 0;
  for (table_line const& line : lines) width = std::max(width, row_text(line.row).size());
  for (table_line const& line : lines) {
    std::string row = row_text(line.row);
    row.resize(width, ' ');
    text += row + "  // " + line.comment + "\n";
  }
  return text + "};\n\n}  // namespace qpn\n";
}

}  // namespace qpn::bench::tune

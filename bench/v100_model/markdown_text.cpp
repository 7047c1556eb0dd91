// SPDX-License-Identifier: Apache-2.0
#include "markdown_text.hpp"

#include <sstream>

namespace qpn::bench::v100 {

std::string table_line(std::vector<std::string> const& cells) {
  std::string text = "|";
  for (std::string const& cell : cells) text.append(" ").append(cell).append(" |");
  return text + "\n";
}

std::string table_head(std::vector<std::string> const& names) {
  return table_line(names) + table_line(std::vector<std::string>(names.size(), "---"));
}

std::string compact(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string constant_line(constant const& one) {
  std::string const unit = one.unit[0] == '\0' ? "" : std::string(" ") + one.unit;
  return table_line({one.name, compact(one.value) + unit, one.source});
}

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#include "sass_table.hpp"

#include <sstream>
#include <stdexcept>

#include "sm70_sass_text.hpp"

namespace qpn::bench::v100 {

double sass_kernel::operator[](std::string const& key) const {
  auto const found = values.find(key);
  if (found == values.end()) {
    throw std::runtime_error("v100 model: the SASS table has no line `" + key + "` for " + name);
  }
  return found->second;
}

sass_kernel const& sass_table::kernel(std::string const& wanted) const {
  for (sass_kernel const& one : kernels) {
    if (one.name == wanted) return one;
  }
  throw std::runtime_error("v100 model: the SASS table has no kernel " + wanted);
}

sass_table parse_sass_table(std::string_view text) {
  sass_table table;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string key;
    if (!(words >> key) || key[0] == '#') continue;
    std::string rest;
    std::getline(words >> std::ws, rest);
    auto const refuse = [&] {
      throw std::runtime_error("v100 model: line " + std::to_string(number) +
                               " of the SASS table is not `key value`: " + line);
    };
    if (rest.empty()) refuse();
    if (key == "kernel") {
      table.kernels.push_back({rest, {}});
    } else if (table.kernels.empty()) {
      if (key == "compiler") {
        table.compiler = rest;
      } else if (key == "sources_sha256") {
        table.sources_sha256 = rest;
      } else if (key != "source") {
        refuse();
      }
    } else {
      std::size_t used = 0;
      double value = 0;
      try {
        value = std::stod(rest, &used);
      } catch (std::exception const&) {
        refuse();
      }
      if (used != rest.size() || !table.kernels.back().values.emplace(key, value).second) refuse();
    }
  }
  return table;
}

sass_table const& built_in_sass_table() {
  static sass_table const table = parse_sass_table(sm70_sass_text);
  return table;
}

}  // namespace qpn::bench::v100

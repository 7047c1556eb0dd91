// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

namespace qpn::bench::v100 {

std::string json_of(std::vector<model_row> const& rows) {
  std::string text = "[";
  for (model_row const& row : rows) {
    if (text.size() > 1) text += ",";
    sass_kernel const& sass = *row.launch.sass;
    text += "\n  {\"shape\": \"" + std::to_string(row.shape.n) + "x" + std::to_string(row.shape.k) +
            "\", \"format\": \"" + std::string(format_name(row.shape)) +
            "\", \"n\": " + std::to_string(row.shape.n) +
            ", \"k\": " + std::to_string(row.shape.k) + ", \"m\": " + std::to_string(row.m) +
            ", \"us\": " + fixed(row.us, 2) + ", \"read_us\": " + fixed(row.read_us, 2) +
            ", \"gb_s\": " + fixed(row.gb_s(), 1) +
            ", \"registers\": " + fixed(sass["registers"], 0) +
            ", \"spills\": " + fixed(sass["spills"], 0) +
            ", \"instr_per_weight\": " + fixed(row.instructions_per_weight(), 2) + "}";
  }
  return text + "\n]\n";
}

}  // namespace qpn::bench::v100

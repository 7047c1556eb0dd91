// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/report.hpp"

namespace qpn::bench::roofline {

std::string json_of(report const& measured) {
  using json = nlohmann::ordered_json;
  auto const known = [](int mhz) { return mhz == 0 ? json() : json(mhz); };
  std::vector<json> rows;
  for (measured_row const& row : measured.rows) {
    json object;
    object["shape"] = row.shape.name;
    object["format"] = to_string(row.shape.format);
    object["n"] = row.shape.n;
    object["k"] = row.shape.k;
    object["m"] = row.m;
    object["x"] = row.x == x_order::rows ? "rows" : "fragments";
    object["us"] = json_us(row.us);
    object["read_us"] = json_us(row.read_us);
    object["cublas_us"] = row.cublas_us ? json(json_us(*row.cublas_us)) : json();
    object["route"] = row.route;
    object["bytes"] = row.bytes;
    object["sm_mhz"] = known(row.sm_mhz);
    object["memory_mhz"] = known(row.memory_mhz);
    add_context(measured.context, object);
    rows.push_back(object);
  }
  return array_text(rows);
}

}  // namespace qpn::bench::roofline

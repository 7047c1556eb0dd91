// SPDX-License-Identifier: Apache-2.0
#include "support/svg.hpp"
#include "comparisons.hpp"
#include "constants.hpp"
#include "report.hpp"

namespace qpn::bench::v100 {

namespace {

using svg::rectangle;
using svg::text_at;

constexpr double left = 210;
constexpr double top = 70;
constexpr double line_height = 22;
constexpr double bar_height = 14;
constexpr double plot_width = 520;
constexpr double largest_gb_s = 900;

double x_of(double gb_s) {
  return left + plot_width * gb_s / largest_gb_s;
}

}  // namespace

std::string svg_of(std::vector<model_row> const& rows) {
  std::string bars;
  double y = top;
  for (model_row const& row : rows) {
    if (!row.shape.has_target || row.m == 2 || row.m == 4 || row.m > 32) continue;
    double const read_gb_s_of_row = row.bytes() / row.read_us * 1e-3;
    bars += text_at(left - 8, y + bar_height - 2, "end",
                    std::string(format_name(row.shape)) + " " + shape_name(row.shape) +
                        ", m = " + std::to_string(row.m));
    bars += rectangle(left, y, x_of(row.gb_s()) - left, bar_height,
                      row.m <= 8    ? "#4472a8"
                      : row.m <= 16 ? "#7fa8d1"
                                    : "#a9c4e2");
    bars += rectangle(x_of(read_gb_s_of_row) - 1, y - 2, 2, bar_height + 4, "#c0392b");
    if (auto const time = predecessor_time(row.shape.format, row.shape.n, row.shape.k, row.m)) {
      bars +=
          rectangle(x_of(row.bytes() / time->us * 1e-3) - 1, y - 2, 2, bar_height + 4, "#222222");
    }
    bars += text_at(left + 34, y + bar_height - 3, "end", fixed(row.gb_s(), 0), "#ffffff");
    y += line_height;
  }
  double const width = left + plot_width + 30;
  double const height = y + 50;
  std::string axis;
  for (int gb_s = 0; gb_s <= static_cast<int>(largest_gb_s); gb_s += 100) {
    axis += rectangle(x_of(gb_s), top - 6, 0.5, y - top + 6, "#bbbbbb");
    axis += text_at(x_of(gb_s), y + 16, "middle", std::to_string(gb_s));
  }
  return svg::document(
      width, height,
      text_at(20, 24, "start", "GB/s of packed weights on a V100-SXM2: modelled, not measured") +
          text_at(20, 44, "start",
                  "Red: the modelled read of the same bytes. Black: the predecessor, measured, "
                  "where published. Read ceiling: " +
                      fixed(read_gb_s.value, 0) + " GB/s") +
          axis + bars);
}

}  // namespace qpn::bench::v100

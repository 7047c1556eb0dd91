// SPDX-License-Identifier: Apache-2.0
#include "support/svg.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "gemm_roofline/report.hpp"
#include "support/text.hpp"

namespace qpn::bench::roofline {

namespace {

constexpr double left = 60;
constexpr double top = 120;
constexpr double plot_width = 560;
constexpr double plot_height = 360;
constexpr double highest = 1.1;
constexpr char const* colours[] = {"#4472a8", "#c0392b", "#3a8f5a", "#8e5aa8",
                                   "#d08a2e", "#2aa1a8", "#666666"};

double y_of(double fraction) {
  return top + plot_height * (1.0 - std::min(fraction, highest) / highest);
}

/// m on a scale of powers of two.
class m_axis {
 public:
  explicit m_axis(std::vector<measured_row> const& rows) {
    for (measured_row const& row : rows) {
      double const place = std::log2(static_cast<double>(row.m));
      ticks_[row.m] = place;
    }
  }
  [[nodiscard]] double x_of(std::int64_t m) const {
    double const first = ticks_.begin()->second;
    double const span = std::max(1.0, ticks_.rbegin()->second - first);
    return left + 20 + (plot_width - 40) * (ticks_.at(m) - first) / span;
  }
  [[nodiscard]] std::string drawn() const {
    std::string axis;
    for (auto const& [m, place] : ticks_) {
      axis += svg::rectangle(x_of(m), top, 0.5, plot_height, "#dddddd");
      axis += svg::text_at(x_of(m), top + plot_height + 18, "middle", std::to_string(m));
    }
    return axis;
  }

 private:
  std::map<std::int64_t, double> ticks_;
};

/// Shapes of TP1 are drawn through, others dashed.
std::string_view dashes_of(model_shape const& shape) {
  return shape.tp == 1 ? "" : "5 3";
}

}  // namespace

std::string svg_of(report const& measured) {
  std::map<std::string_view, std::vector<measured_row const*>> lines;
  for (measured_row const& row : measured.rows) lines[row.shape.name].push_back(&row);

  std::string body = svg::text_at(
      20, 24, "start", "Time of a kernel that only reads the packed weight / time of the GEMM");
  double line_y = 44;
  for (std::string const& line : lines_of(measured.context)) {
    body += svg::text_at(20, line_y, "start", line, "#666666");
    line_y += 16;
  }
  for (int tenths = 0; tenths <= 10; tenths += 2) {
    double const fraction = tenths / 10.0;
    body += svg::rectangle(left, y_of(fraction), plot_width, 0.5, "#bbbbbb");
    body += svg::text_at(left - 8, y_of(fraction) + 4, "end", fixed(fraction, 1));
  }
  body += svg::text_at(left + plot_width / 2, top + plot_height + 38, "middle", "m, rows of x");
  if (!measured.rows.empty()) {
    m_axis const axis(measured.rows);
    body += axis.drawn();
    double legend_y = top + 10;
    std::size_t colour_index = 0;
    for (auto& [name, rows] : lines) {
      char const* const colour = colours[colour_index++ % std::size(colours)];
      std::sort(rows.begin(), rows.end(),
                [](measured_row const* a, measured_row const* b) { return a->m < b->m; });
      std::string points;
      std::string marks;
      for (measured_row const* row : rows) {
        double const x = axis.x_of(row->m);
        double const y = y_of(row->fraction());
        if (!points.empty()) points += ' ';
        points += fixed(x, 1) + "," + fixed(y, 1);
        marks += svg::circle(x, y, 2.5, colour);
      }
      std::string_view const dashes = dashes_of(rows.front()->shape);
      body += svg::polyline(points, colour, dashes) + marks;
      double const legend_x = left + plot_width + 20;
      body += svg::polyline(fixed(legend_x, 1) + "," + fixed(legend_y - 4, 1) + " " +
                                fixed(legend_x + 30, 1) + "," + fixed(legend_y - 4, 1),
                            colour, dashes);
      body += svg::text_at(legend_x + 38, legend_y, "start",
                           std::string(name) + " (" + to_string(rows.front()->shape.format) + ")");
      legend_y += 20;
    }
  }
  return svg::document(left + plot_width + 220, top + plot_height + 60, body);
}

}  // namespace qpn::bench::roofline

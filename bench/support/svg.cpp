// SPDX-License-Identifier: Apache-2.0
#include "support/svg.hpp"

#include "support/text.hpp"

namespace qpn::bench::svg {

namespace {

std::string escaped(std::string_view words) {
  std::string text;
  for (char const letter : words) {
    switch (letter) {
      case '&': text += "&amp;"; break;
      case '<': text += "&lt;"; break;
      case '>': text += "&gt;"; break;
      default: text += letter;
    }
  }
  return text;
}

std::string attribute(char const* name, std::string_view value) {
  return std::string(" ") + name + "=\"" + std::string(value) + "\"";
}

std::string attribute(char const* name, double value) {
  return attribute(name, fixed(value, 1));
}

}  // namespace

std::string document(double width, double height, std::string const& body) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixed(width, 0) + "\" height=\"" +
         fixed(height, 0) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
         rectangle(0, 0, width, height, "#ffffff") + body + "</svg>\n";
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view words,
                    std::string_view fill) {
  return "<text" + attribute("x", x) + attribute("y", y) + attribute("text-anchor", anchor) +
         attribute("fill", fill) + ">" + escaped(words) + "</text>\n";
}

std::string rectangle(double x, double y, double width, double height, std::string_view fill) {
  return "<rect" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
         attribute("height", height) + attribute("fill", fill) + "/>\n";
}

std::string polyline(std::string_view points, std::string_view stroke, std::string_view dashes) {
  return "<polyline" + attribute("points", points) + attribute("fill", "none") +
         attribute("stroke", stroke) + attribute("stroke-width", "1.5") +
         (dashes.empty() ? "" : attribute("stroke-dasharray", dashes)) + "/>\n";
}

std::string circle(double x, double y, double radius, std::string_view fill) {
  return "<circle" + attribute("cx", x) + attribute("cy", y) + attribute("r", radius) +
         attribute("fill", fill) + "/>\n";
}

}  // namespace qpn::bench::svg

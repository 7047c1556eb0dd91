// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// The elements of the charts. Sizes and places are in user units.

namespace qpn::bench::svg {

/// The document around `body`, on a white ground.
[[nodiscard]] std::string document(double width, double height, std::string const& body);

/// @param anchor  start, middle or end
[[nodiscard]] std::string text_at(double x, double y, std::string_view anchor,
                                  std::string_view words, std::string_view fill = "#222222");

[[nodiscard]] std::string rectangle(double x, double y, double width, double height,
                                    std::string_view fill);

/// @param points  "x,y x,y ..."
/// @param dashes  stroke-dasharray, or empty
[[nodiscard]] std::string polyline(std::string_view points, std::string_view stroke,
                                   std::string_view dashes);

[[nodiscard]] std::string circle(double x, double y, double radius, std::string_view fill);

}  // namespace qpn::bench::svg

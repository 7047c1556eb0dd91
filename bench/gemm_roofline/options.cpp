// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/options.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "support/arguments.hpp"

namespace qpn::bench::roofline {

namespace {

/// Those of the list, in the order of model_shapes. An empty list chooses all.
std::vector<model_shape> chosen_shapes(std::vector<std::string_view> const& names,
                                       std::vector<std::string_view> const& formats) {
  auto const is_group = [](std::string_view name) { return name == "tp1" || name == "tp4"; };
  auto const lists = [](std::vector<std::string_view> const& list, std::string_view word) {
    return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
  };
  for (std::string_view const name : names) {
    if (!is_group(name)) static_cast<void>(shape_named(name));
  }
  for (std::string_view const format : formats) {
    if (format != "nvfp4" && format != "fp8") {
      throw std::invalid_argument("no shape has format " + std::string(format) +
                                  ", expected nvfp4 or fp8");
    }
  }
  std::vector<model_shape> shapes;
  for (model_shape const& shape : model_shapes()) {
    bool const named = lists(names, shape.name) || lists(names, shape.name.substr(0, 3));
    if (named && lists(formats, to_string(shape.format))) shapes.push_back(shape);
  }
  if (shapes.empty()) throw std::invalid_argument("--shapes and --formats leave no shape");
  return shapes;
}

x_order order_named(std::string_view name) {
  if (name == "rows") return x_order::rows;
  if (name == "fragments") return x_order::fragments;
  throw std::invalid_argument("--x takes rows or fragments, not '" + std::string(name) + "'");
}

}  // namespace

bool is_google_benchmark(std::string_view argument) {
  return argument.substr(0, 12) == "--benchmark_";
}

options parse(int argc, char const* const* argv) {
  options chosen;
  std::vector<std::string_view> names;
  std::vector<std::string_view> formats;
  argument_reader arguments(argc, argv);
  while (arguments.next()) {
    std::string_view const name = arguments.name();
    if (name == "--help") {
      chosen.help = true;
    } else if (name == "--table") {
      chosen.table = true;
    } else if (name == "--shapes") {
      names = arguments.words();
    } else if (name == "--formats") {
      formats = arguments.words();
    } else if (name == "--m") {
      chosen.m = arguments.integers(1, 65535);
    } else if (name == "--x") {
      chosen.x = order_named(arguments.value());
    } else if (name == "--read-sizes") {
      chosen.read_megabytes = arguments.integers(1, 100'000);
    } else if (name == "--replays") {
      chosen.replays = arguments.integer(1, 10'000);
    } else if (name == "--launches") {
      chosen.launches = arguments.integer(200, 100'000);
    } else if (name == "--json") {
      chosen.json_file = arguments.value();
    } else if (name == "--svg") {
      chosen.svg_file = arguments.value();
    } else if (!is_google_benchmark(name)) {
      arguments.refuse();
    }
  }
  chosen.shapes = chosen_shapes(names, formats);
  return chosen;
}

}  // namespace qpn::bench::roofline

// SPDX-License-Identifier: Apache-2.0
#include "gemm_tune/options.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "gemm_tune/header.hpp"
#include "support/arguments.hpp"

namespace qpn::bench::tune {

namespace {

/// n or k, from 1 to a million; 0 where the text is none.
std::int64_t extent_of(std::string_view text) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool const whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= 1'000'000 ? value : 0;
}

/// "nvfp4:34816x5120"
model_shape shape_of(std::string_view text) {
  std::size_t const colon = text.find(':');
  std::string_view const format = text.substr(0, colon);
  std::string_view const sizes = text.substr(colon + 1);
  std::size_t const by = sizes.find('x');
  std::int64_t const n = extent_of(sizes.substr(0, by));
  std::int64_t const k = by == std::string_view::npos ? 0 : extent_of(sizes.substr(by + 1));
  if ((format != "nvfp4" && format != "fp8") || n == 0 || k == 0) {
    throw std::invalid_argument(
        "--shape takes nvfp4 or fp8, a colon, and n x k up to a million, as in nvfp4:34816x5120, "
        "not '" +
        std::string(text) + "'");
  }
  return {text, 1, format == "fp8" ? format_id::fp8 : format_id::nvfp4, n, k};
}

std::vector<model_shape> shapes_of(std::vector<std::string_view> const& words) {
  std::vector<model_shape> shapes;
  auto const add = [&](model_shape const& shape) {
    bool const known = std::any_of(shapes.begin(), shapes.end(), [&](model_shape const& other) {
      return other.format == shape.format && other.n == shape.n && other.k == shape.k;
    });
    if (!known) shapes.push_back(shape);
  };
  for (std::string_view const word : words) {
    if (word == "tp1" || word == "tp4") {
      for (model_shape const& shape : model_shapes()) {
        if (shape.name.substr(0, 3) == word) add(shape);
      }
    } else {
      add(word.find(':') != std::string_view::npos ? shape_of(word) : shape_named(word));
    }
  }
  return shapes;
}

}  // namespace

options parse(int argc, char const* const* argv) {
  options chosen;
  std::vector<std::string_view> shapes = {"tp1", "tp4"};
  argument_reader arguments(argc, argv);
  while (arguments.next()) {
    std::string_view const name = arguments.name();
    if (name == "--help") {
      chosen.help = true;
    } else if (name == "--shape") {
      shapes = arguments.words();
    } else if (name == "--m") {
      chosen.m = arguments.integers(1, 65535);
    } else if (name == "--replays") {
      chosen.replays = arguments.integer(1, 10'000);
    } else if (name == "--launches") {
      chosen.launches = arguments.integer(200, 100'000);
    } else if (name == "--most-ms") {
      chosen.most_ms = arguments.integer(1, 100'000);
    } else if (name == "--header") {
      chosen.header_file = arguments.value();
    } else if (name == "--json") {
      chosen.json_file = arguments.value();
    } else {
      arguments.refuse();
    }
  }
  if (!chosen.header_file.empty() && array_name(chosen.header_file).empty()) {
    throw std::invalid_argument(
        "--header takes a file whose name could be that of an array, not '" + chosen.header_file +
        "'");
  }
  chosen.shapes = shapes_of(shapes);
  std::sort(chosen.m.begin(), chosen.m.end());
  chosen.m.erase(std::unique(chosen.m.begin(), chosen.m.end()), chosen.m.end());
  return chosen;
}

}  // namespace qpn::bench::tune

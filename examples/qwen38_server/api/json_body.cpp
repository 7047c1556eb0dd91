// SPDX-License-Identifier: Apache-2.0
#include "api/json_body.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/error.hpp"

namespace qwen38::api {
namespace {

using json = nlohmann::ordered_json;

// Builds the value itself: nlohmann's callback parser could refuse as well, but scans the parent at
// the end of every object, which is quadratic in the length of an array.
class limited_builder final : public nlohmann::json_sax<json> {
 public:
  explicit limited_builder(json_limits const& limits) : limits_(limits) {}

  bool null() override { return add(json(nullptr)); }
  bool boolean(bool value) override { return add(json(value)); }
  bool number_integer(number_integer_t value) override { return add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(json(value)); }
  bool number_float(number_float_t value, string_t const& /*text*/) override {
    return add(json(value));
  }
  bool string(string_t& value) override { return add(json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }  // not a JSON type

  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto& object = *open_.back();
    if (object.size() >= limits_.members) {
      return refuse("holds an object of more than " + std::to_string(limits_.members) + " members");
    }
    if (object.contains(name)) return refuse("holds an object with the same member twice");
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, std::string const& /*last_token*/,
                   nlohmann::detail::exception const& cause) override {
    std::string_view const sentence = cause.what();
    if (sentence.find("ill-formed UTF-8") != std::string_view::npos) {
      problem_ = "is not valid UTF-8 at byte " + std::to_string(position);
    } else if (sentence.find("number overflow") != std::string_view::npos) {
      problem_ = "holds a number out of range at byte " + std::to_string(position);
    } else {
      problem_ = "is not valid JSON at byte " + std::to_string(position);
    }
    return false;
  }

  [[nodiscard]] std::string const& problem() const noexcept { return problem_; }
  [[nodiscard]] json take() noexcept { return std::move(root_); }

 private:
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  json* place(json&& value) {
    if (++nodes_ > limits_.nodes) {
      refuse("holds more than " + std::to_string(limits_.nodes) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    auto& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }
  bool add(json&& value) { return place(std::move(value)) != nullptr; }
  bool open(json&& value) {
    if (open_.size() >= limits_.depth) {
      return refuse("is nested more than " + std::to_string(limits_.depth) + " levels deep");
    }
    // The pointer stays valid: while a value is open nothing is added to its parent.
    auto* const placed = place(std::move(value));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  json_limits limits_;
  std::size_t nodes_ = 0;
  std::vector<json*> open_;
  std::string key_;
  std::string problem_;
  json root_;
};

}  // namespace

json parse_json(std::string_view text, std::string_view what, json_limits const& limits) {
  // To the JSON library a zero byte is the end of its input, whatever comes after.
  if (auto const zero = text.find('\0'); zero != std::string_view::npos) {
    throw error(error_kind::invalid_argument,
                std::string(what) + " is not valid JSON at byte " + std::to_string(zero + 1) + '.');
  }
  limited_builder builder(limits);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    auto const& problem = builder.problem();
    throw error(error_kind::invalid_argument,
                std::string(what) + ' ' + (problem.empty() ? "is not valid JSON" : problem) + '.');
  }
  return builder.take();
}

}  // namespace qwen38::api

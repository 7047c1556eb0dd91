// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace qwen38::api {

/// Typed, range-checked reading of the members of one JSON object. An absent member and null are
/// the same: not given. Every complaint is a field_error (400) that names the member, what was
/// expected and what stood there.
class request_fields {
 public:
  /// `object` outlives this. `path` is its own name, "" for the body. Throws if it is not an
  /// object.
  explicit request_fields(nlohmann::ordered_json const& object, std::string path = {});

  /// The member, or nullptr if it is absent or null.
  [[nodiscard]] nlohmann::ordered_json const* find(std::string_view name) const;

  [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> string(std::string_view name) const;
  /// An integer in [low, high]; 3.0 counts as 3.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t low,
                                                    std::int64_t high) const;
  /// A number in [low, high].
  [[nodiscard]] std::optional<double> number(std::string_view name, double low, double high) const;
  /// Any signed or unsigned 64-bit integer, as its bits.
  [[nodiscard]] std::optional<std::uint64_t> integer_bits(std::string_view name) const;
  /// An array of at most `most` elements, or nullptr.
  [[nodiscard]] nlohmann::ordered_json const* array(std::string_view name, std::size_t most) const;
  /// An object, or nullptr.
  [[nodiscard]] nlohmann::ordered_json const* object(std::string_view name) const;

  /// "path.name"
  [[nodiscard]] std::string path_of(std::string_view name) const;
  /// Refuses a meaning that cannot be honoured: a field_error of kind unsupported.
  [[noreturn]] void refuse(std::string_view name, std::string const& sentence) const;
  /// Refuses all members but these, unless they are null or false: for objects whose every member
  /// has a meaning.
  void refuse_others(std::initializer_list<std::string_view> served) const;

 private:
  nlohmann::ordered_json const* object_;
  std::string path_;
};

/// `value` as an integer in [low, high]; nullopt if it is none.
[[nodiscard]] std::optional<std::int64_t> as_integer(nlohmann::ordered_json const& value,
                                                     std::int64_t low, std::int64_t high);

/// "`word`" for a short word of letters, digits and underscores, else "something else": what a
/// client wrote is never echoed at length.
[[nodiscard]] std::string quoted_word(std::string_view word);

/// Throws a field_error of kind invalid_argument: "path: expected <expected>, got <value>."
[[noreturn]] void fail_field(std::string const& path, std::string_view expected,
                             nlohmann::ordered_json const& value);

}  // namespace qwen38::api

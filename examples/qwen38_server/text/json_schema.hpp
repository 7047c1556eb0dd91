// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace qwen38::text {

// The keywords of one JSON schema, read and checked. What throws, throws qwen38::error:
// invalid_argument for what is broken, unsupported for what json_grammar does not serve, each with
// the keyword in front.

[[noreturn]] void refuse_schema(std::string const& sentence);
[[noreturn]] void refuse_together(std::string_view one, std::string_view other);

/// Refuses every keyword that json_grammar neither serves nor may pass over.
void check_keywords(nlohmann::ordered_json const& schema);

/// The keyword that stands for all of the schema ($ref, allOf, anyOf, oneOf, const, enum), or "".
/// Beside it nothing may say anything about values, but for the type beside enum, const, anyOf and
/// oneOf.
[[nodiscard]] std::string_view whole_word(nlohmann::ordered_json const& schema);

/// nullptr: not there.
[[nodiscard]] nlohmann::ordered_json const* find_keyword(nlohmann::ordered_json const& schema,
                                                         std::string_view name);

struct schema_counts {
  std::int64_t least = 0;
  std::int64_t most = -1;  ///< -1: any
};

/// Of two keywords that bound a number from below and above.
[[nodiscard]] schema_counts read_counts(nlohmann::ordered_json const& schema,
                                        std::string_view least, std::string_view most);

/// The pattern of a `format`.
[[nodiscard]] std::string_view format_pattern(std::string_view format);

/// type is one of types_of().
[[nodiscard]] bool fits_type(nlohmann::ordered_json const& value, std::string_view type);

/// The names in `type`, or what the other keywords imply; none: any type.
[[nodiscard]] std::vector<std::string> types_of(nlohmann::ordered_json const& schema);

/// Where a $ref points to.
[[nodiscard]] nlohmann::ordered_json const& schema_at(std::string const& pointer,
                                                      nlohmann::ordered_json const& document);
[[nodiscard]] std::string const& reference_of(nlohmann::ordered_json const& schema);

/// The array of a keyword that is there; not empty.
[[nodiscard]] nlohmann::ordered_json const& list_of(nlohmann::ordered_json const& schema,
                                                    std::string_view name);
/// The one schema of allOf.
[[nodiscard]] nlohmann::ordered_json const& only_of_all(nlohmann::ordered_json const& schema);

/// What `schema` is when all that it refers to is followed: itself, or the schema that its $ref or
/// only allOf leads to.
[[nodiscard]] nlohmann::ordered_json const& resolve_schema(nlohmann::ordered_json const& schema,
                                                           nlohmann::ordered_json const& document);

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "api/reply.hpp"
#include "http/options.hpp"

namespace qwen38::http {

// What the server answers by itself, before or instead of api::handler.

[[nodiscard]] api::reply malformed_http(std::string const& sentence);
[[nodiscard]] api::reply header_too_large(limits const& bounds);
[[nodiscard]] api::reply too_many_header_fields(limits const& bounds);
[[nodiscard]] api::reply body_too_large(limits const& bounds);
[[nodiscard]] api::reply no_valid_key();
[[nodiscard]] api::reply no_such_path();
/// allow: the methods that the path has.
[[nodiscard]] api::reply no_such_method(std::string_view allow);
[[nodiscard]] api::reply too_many_connections();
[[nodiscard]] api::reply too_many_bodies();
/// There is no handler yet.
[[nodiscard]] api::reply still_loading();

}  // namespace qwen38::http

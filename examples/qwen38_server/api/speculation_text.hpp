// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/request.hpp"

namespace qwen38::api {

/// Appends the members of an object, without its braces: "k" (a depth, or "auto"), "rounds",
/// "drafted", "accepted", "tau", "accepted_at" and, with "auto", "rounds_at": how many rounds had
/// each depth.
void append_speculation(std::string& out, engine::speculation_counts const& counts);

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#include "api/speculation_text.hpp"

#include <cstddef>
#include <string_view>

#include "api/json_text.hpp"

namespace qwen38::api {
namespace {

void append_count(std::string& out, std::string_view name, std::int64_t value) {
  out += name;
  append_json_integer(out, value);
}

}  // namespace

void append_speculation(std::string& out, engine::speculation_counts const& counts) {
  if (counts.chooses_depth) {
    out += R"("k":"auto")";
  } else {
    append_count(out, R"("k":)", counts.draft_tokens);
  }
  append_count(out, R"(,"rounds":)", counts.rounds);
  append_count(out, R"(,"drafted":)", counts.drafted);
  append_count(out, R"(,"accepted":)", counts.accepted);
  out += R"(,"tau":)";
  append_json_decimal(out, counts.tau());
  out += R"(,"accepted_at":[)";
  for (std::size_t i = 0; i < counts.accepted_at.size(); ++i) {
    append_count(out, i > 0 ? "," : "", counts.accepted_at[i]);
  }
  out += ']';
  if (!counts.chooses_depth) return;
  out += R"(,"rounds_at":{)";
  for (std::size_t i = 0; i < counts.rounds_at.size(); ++i) {
    append_count(out, i > 0 ? ",\"" : "\"", model::round_depths[i]);
    append_count(out, "\":", counts.rounds_at[i]);
  }
  out += '}';
}

}  // namespace qwen38::api

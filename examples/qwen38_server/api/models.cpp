// SPDX-License-Identifier: Apache-2.0
#include "api/models.hpp"

#include <algorithm>

#include "api/errors.hpp"
#include "api/json_text.hpp"

namespace qwen38::api {
namespace {

void append_model(std::string& out, std::string_view id, settings const& served,
                  model_limits const& limits) {
  out += R"({"id":)";
  append_json_string(out, id);
  out += R"(,"object":"model","created":)";
  append_json_integer(out, served.created);
  out += R"(,"owned_by":"qpn","max_model_len":)";
  append_json_integer(out, limits.max_context);
  out += '}';
}

}  // namespace

reply models_reply(settings const& served, model_limits const& limits) {
  reply out;
  out.body = R"({"object":"list","data":[)";
  append_model(out.body, served.model_id, served, limits);
  for (auto const& alias : served.aliases) {
    out.body += ',';
    append_model(out.body, alias, served, limits);
  }
  out.body += "]}\n";
  return out;
}

reply model_reply(settings const& served, model_limits const& limits, std::string_view id) {
  if (!served.accept_any_model && id != served.model_id &&
      std::find(served.aliases.begin(), served.aliases.end(), id) == served.aliases.end()) {
    return to_reply(describe_error(field_error(
        error_kind::not_found, "model",
        "model: this name is not served here; this server has `" + served.model_id + "`.")));
  }
  reply out;
  append_model(out.body, id, served, limits);
  out.body += '\n';
  return out;
}

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#include "http/refusals.hpp"

#include <cstdint>
#include <utility>

#include "api/errors.hpp"

namespace qwen38::http {
namespace {

// A model of this size takes minutes to load; who comes back sooner loses little.
constexpr std::int64_t loading_retry_s = 5;

api::error_reply problem(int status, std::string type, std::string code, std::string message) {
  api::error_reply out;
  out.status = status;
  out.type = std::move(type);
  out.code = std::move(code);
  out.message = std::move(message);
  return out;
}

api::reply bad_request(int status, std::string code, std::string message) {
  return to_reply(problem(status, "invalid_request_error", std::move(code), std::move(message)));
}

api::reply overload(std::string message) {
  return to_reply(problem(503, "server_overloaded", "server_overloaded", std::move(message)));
}

}  // namespace

api::reply malformed_http(std::string const& sentence) {
  return bad_request(400, "malformed_http", sentence);
}

api::reply header_too_large(limits const& bounds) {
  return bad_request(431, "header_too_large",
                     "The request's header is too large: expected at most " +
                         std::to_string(bounds.header_bytes) + " bytes.");
}

api::reply too_many_header_fields(limits const& bounds) {
  return bad_request(431, "header_too_large",
                     "The request has too many header fields: expected at most " +
                         std::to_string(bounds.header_count) + '.');
}

api::reply body_too_large(limits const& bounds) {
  return bad_request(413, "body_too_large",
                     "The request's body is too large: expected at most " +
                         std::to_string(bounds.body_bytes) + " bytes.");
}

api::reply no_valid_key() {
  return bad_request(401, "invalid_api_key",
                     "A valid API key is needed: expected the header Authorization: Bearer KEY.");
}

api::reply no_such_path() {
  return bad_request(404, "not_found",
                     "There is nothing at this path: expected /v1/chat/completions, "
                     "/v1/completions, /v1/models, /tokenize, /detokenize, /version, /metrics or "
                     "/health.");
}

api::reply no_such_method(std::string_view allow) {
  return bad_request(405, "method_not_allowed",
                     "This path does not have this method: expected " + std::string(allow) + '.');
}

api::reply too_many_connections() {
  return overload("Too many connections; try again later.");
}

api::reply too_many_bodies() {
  return overload("Too many large requests at once; try again later.");
}

api::reply still_loading() {
  auto out = problem(503, "server_error", "loading", "The model is being loaded; try again later.");
  out.retry_after_s = loading_retry_s;
  return to_reply(out);
}

}  // namespace qwen38::http

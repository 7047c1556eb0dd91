// SPDX-License-Identifier: Apache-2.0
#include "api/errors.hpp"

#include "api/json_text.hpp"

namespace qwen38::api {
namespace {

error_reply describe_own(error const& cause) {
  error_reply out;
  out.message = cause.what();
  switch (cause.kind()) {
    case error_kind::invalid_argument:
      out.status = 400;
      out.type = "invalid_request_error";
      break;
    case error_kind::unsupported:
      out.status = 400;
      out.type = "invalid_request_error";
      out.code = "unsupported";
      break;
    case error_kind::context_length_exceeded:
      out.status = 400;
      out.type = "invalid_request_error";
      out.code = "context_length_exceeded";
      break;
    case error_kind::not_found:
      out.status = 404;
      out.type = "invalid_request_error";
      out.code = "not_found";
      break;
    case error_kind::overloaded:
      out.status = 429;
      out.type = "server_overloaded";
      out.code = "server_overloaded";
      break;
    case error_kind::unavailable:
      out.status = 503;
      out.code = "unavailable";
      break;
    case error_kind::corrupt_data:
    case error_kind::io:
    case error_kind::internal:
      out.message = "The server failed while handling this request.";
      break;
  }
  return out;
}

}  // namespace

error_reply describe_error(std::exception const& cause) {
  auto const* const own = dynamic_cast<error const*>(&cause);
  if (own == nullptr) {
    error_reply foreign;
    foreign.message = "The server failed while handling this request.";
    return foreign;
  }
  auto out = describe_own(*own);
  if (auto const* const field = dynamic_cast<field_error const*>(own)) {
    out.param = field->param();
    if (own->kind() == error_kind::not_found && field->param() == "model") {
      out.code = "model_not_found";
    }
  }
  return out;
}

std::string error_body(error_reply const& what) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, std::string_view(what.message));
  out += R"(,"type":)";
  append_json_string(out, std::string_view(what.type));
  out += R"(,"param":)";
  append_json_string(out, what.param);
  out += R"(,"code":)";
  append_json_string(out, what.code);
  out += "}}";
  return out;
}

reply to_reply(error_reply const& what) {
  reply out{what.status, error_body(what) + '\n'};
  if (what.status == 429 || what.status == 503) out.retry_after_s = what.retry_after_s;
  return out;
}

}  // namespace qwen38::api

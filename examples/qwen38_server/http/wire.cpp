// SPDX-License-Identifier: Apache-2.0
#include "http/wire.hpp"

#include <array>
#include <charconv>

namespace qwen38::http {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Internal Server Error";
  }
}

std::string begin_head(int status, head_fields const& fields) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + ' ';
  out += reason(status);
  out += "\r\nx-request-id: ";
  out += fields.request_id;
  out += "\r\nConnection: ";
  out += fields.keep_alive ? "keep-alive" : "close";
  out += "\r\n";
  return out;
}

}  // namespace

std::string format_reply(api::reply const& whole, head_fields const& fields, bool omit_body) {
  auto out = begin_head(whole.status, fields);
  out += "Content-Type: ";
  out += whole.content_type;
  out += "\r\nContent-Length: " + std::to_string(whole.body.size()) + "\r\n";
  if (whole.retry_after_s > 0)
    out += "Retry-After: " + std::to_string(whole.retry_after_s) + "\r\n";
  if (whole.status == 401) out += "WWW-Authenticate: Bearer\r\n";
  if (!fields.allow.empty()) {
    out += "Allow: ";
    out += fields.allow;
    out += "\r\n";
  }
  out += "\r\n";
  if (!omit_body) out += whole.body;
  return out;
}

std::string format_stream_head(head_fields const& fields) {
  auto out = begin_head(200, fields);
  out +=
      "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n";
  if (!fields.http_1_0) out += "Transfer-Encoding: chunked\r\n";
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  std::array<char, 20> digits{};
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), data.size(), 16).ptr;
  out.append(digits.data(), end);
  out += "\r\n";
  out += data;
  out += "\r\n";
}

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "api/reply.hpp"

namespace qwen38::http {

/// What a reply's head says about its connection and its request.
struct head_fields {
  std::string_view request_id;
  bool keep_alive = true;
  bool http_1_0 = false;   ///< a stream is then delimited by the end of the connection
  std::string_view allow;  ///< of 405
};

/// Head and body of a JSON reply; with omit_body (HEAD) the head alone, which still tells the
/// body's length.
[[nodiscard]] std::string format_reply(api::reply const& whole, head_fields const& fields,
                                       bool omit_body = false);

/// Head of a stream of server-sent events: chunked, or close-delimited for HTTP/1.0.
[[nodiscard]] std::string format_stream_head(head_fields const& fields);

/// Appends `data` as a chunk of the chunked coding. Empty data would end the stream, and appends
/// nothing.
void append_chunk(std::string& out, std::string_view data);

inline constexpr std::string_view last_chunk = "0\r\n\r\n";
inline constexpr std::string_view keep_alive_comment = ": keep-alive\n\n";

}  // namespace qwen38::http

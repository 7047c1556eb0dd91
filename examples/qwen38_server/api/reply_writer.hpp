// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/request.hpp"

namespace qwen38::api {

enum class endpoint { chat_completions, completions };

/// The fields that are the same in every chunk of a reply.
struct reply_identity {
  std::string id;            ///< "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model;
};

/// Writes one request's answer in the shapes of the OpenAI API, as text, with no tree of values in
/// between.
///
/// Stream: a chunk with the role (chat only), deltas, a chunk with finish_reason, if asked for one
/// with usage, [DONE]. With include_usage all chunks but that one carry `usage: null`, otherwise
/// none has the field. `timings` and `speculative` stand in the chunk with finish_reason, whether
/// or not usage is asked for: clients ignore fields of a chunk that they do not know, but some drop
/// a chunk without choices.
class reply_writer {
 public:
  reply_writer(endpoint kind, reply_identity const& identity, bool include_usage);

  void append_begin(std::string& out) const;
  /// Nothing for a step without text.
  void append_delta(std::string& out, engine::output_delta const& delta) const;
  /// Finish chunk, usage chunk, [DONE]. outcome.finish is stop or length.
  void append_end(std::string& out, engine::result const& outcome) const;

  /// The whole answer of a plain request. outcome.finish is stop or length. Empty content is null
  /// if there is reasoning: the answer was cut off before it began.
  [[nodiscard]] std::string whole(std::string_view reasoning, std::string_view content,
                                  engine::result const& outcome) const;

 private:
  void append_text_chunk(std::string& out, std::string_view field, std::string_view text) const;

  endpoint kind_;
  std::string chunk_prefix_;  // `data: {"id":..,"choices":[{"index":0,`
  std::string whole_prefix_;  // `{"id":..,"choices":[{"index":0,`
  std::string usage_prefix_;  // `data: {"id":..,"choices":[],"usage":`
  std::string chunk_suffix_;  // usage if asked for, the closing brace and the blank line
  bool include_usage_;
};

/// `data: {"error":{..}}` and a blank line, for a stream that has begun.
void append_error_frame(std::string& out, std::string_view error_body);

}  // namespace qwen38::api

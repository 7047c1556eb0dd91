// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_reader.hpp"
#include "engine/request.hpp"
#include "text/tokenizer.hpp"

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
///
/// A call has the id `call_`, the reply's own part of its id, `_` and its index; its first delta
/// has id, type and name, the others more of the arguments. Log probabilities of a step stand in
/// its first chunk with text, or in a later one where it has none.
class reply_writer {
 public:
  /// tokens: shows the tokens of log probabilities and outlives this; null: none are shown.
  reply_writer(endpoint kind, reply_identity const& identity, bool include_usage,
               text::tokenizer const* tokens = nullptr);

  void append_begin(std::string& out) const;
  /// Nothing for a step without text.
  void append_step(std::string& out, answer_step const& step);
  /// Finish chunk, usage chunk, [DONE]. outcome.finish is stop or length. called: see
  /// answer_reader.
  void append_end(std::string& out, engine::result const& outcome, bool called);

  /// The whole answer of a plain request. outcome.finish is stop or length. Empty content is null
  /// if there is reasoning or a call: the answer was cut off before it began, or has no text.
  [[nodiscard]] std::string whole(answer const& all, engine::result const& outcome, bool called);

 private:
  void append_text_chunk(std::string& out, std::string_view field, std::string_view text);
  void append_call_chunk(std::string& out, text::tool_event const& event);
  void append_logprobs(std::string& out);
  void append_call_id(std::string& out, int index) const;

  endpoint kind_;
  std::string chunk_prefix_;  // `data: {"id":..,"choices":[{"index":0,`
  std::string whole_prefix_;  // `{"id":..,"choices":[{"index":0,`
  std::string usage_prefix_;  // `data: {"id":..,"choices":[],"usage":`
  std::string chunk_suffix_;  // usage if asked for, the closing brace and the blank line
  std::string call_prefix_;   // of the ids of calls
  bool include_usage_;
  text::tokenizer const* tokens_;
  std::vector<engine::token_logprobs> logprobs_;  // not yet written
  std::int64_t text_offset_ = 0;                  // of the next of them
};

/// `data: {"error":{..}}` and a blank line, for a stream that has begun.
void append_error_frame(std::string& out, std::string_view error_body);

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#include "api/reply_writer.hpp"

#include <algorithm>

#include "api/json_text.hpp"

namespace qwen38::api {
namespace {

std::string head(std::string_view object, reply_identity const& identity,
                 std::string_view choices) {
  std::string out = R"({"id":)";
  append_json_string(out, std::string_view(identity.id));
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  append_json_integer(out, identity.created);
  out += R"(,"model":)";
  append_json_string(out, std::string_view(identity.model));
  out += choices;
  return out;
}

std::string_view finish_name(engine::finish_reason finish) {
  return finish == engine::finish_reason::length ? "length" : "stop";
}

void append_member(std::string& out, std::string_view name, std::int64_t value) {
  out += '"';
  out += name;
  out += "\":";
  append_json_integer(out, value);
}

void append_member(std::string& out, std::string_view name, double value) {
  out += '"';
  out += name;
  out += "\":";
  append_json_decimal(out, value);
}

void append_usage(std::string& out, engine::usage_counts const& usage) {
  out += '{';
  append_member(out, "prompt_tokens", usage.prompt_tokens);
  out += ',';
  append_member(out, "completion_tokens", usage.completion_tokens);
  out += ',';
  append_member(out, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
  out += R"(,"prompt_tokens_details":{)";
  append_member(out, "cached_tokens", usage.cached_tokens);
  out += R"(},"completion_tokens_details":{)";
  append_member(out, "reasoning_tokens", usage.reasoning_tokens);
  out += "}}";
}

/// timings has llama.cpp's field names: prompt_n tokens were computed and cache_n reused.
/// predicted_ms runs from the first token to the last, so that it holds one token less than
/// predicted_n.
void append_measurements(std::string& out, engine::result const& outcome) {
  auto const& usage = outcome.usage;
  auto const& timing = outcome.timing;
  auto const intervals =
      static_cast<double>(std::max<std::int64_t>(usage.completion_tokens - 1, 0));
  out += R"(,"timings":{)";
  append_member(out, "queued_ms", timing.queued);
  out += ',';
  append_member(out, "cache_n", usage.cached_tokens);
  out += ',';
  append_member(out, "prompt_n", usage.prompt_tokens - usage.cached_tokens);
  out += ',';
  append_member(out, "prompt_ms", timing.prefill);
  out += ',';
  append_member(out, "predicted_n", usage.completion_tokens);
  out += ',';
  append_member(out, "predicted_ms", timing.decode);
  out += ',';
  append_member(out, "predicted_per_second",
                timing.decode > 0 ? 1000.0 * intervals / timing.decode : 0.0);

  auto const& speculation = outcome.speculation;
  out += R"(},"speculative":{)";
  append_member(out, "k", std::int64_t{speculation.draft_tokens});
  out += ',';
  append_member(out, "rounds", speculation.rounds);
  out += ',';
  append_member(out, "drafted", speculation.drafted);
  out += ',';
  append_member(out, "accepted", speculation.accepted);
  out += ',';
  append_member(out, "tau", speculation.tau());
  out += R"(,"accepted_at":[)";
  for (std::size_t depth = 0; depth < speculation.accepted_at.size(); ++depth) {
    if (depth > 0) out += ',';
    append_json_integer(out, speculation.accepted_at[depth]);
  }
  out += "]}";
}

}  // namespace

reply_writer::reply_writer(endpoint kind, reply_identity const& identity, bool include_usage)
    : kind_(kind), include_usage_(include_usage) {
  bool const chat = kind == endpoint::chat_completions;
  std::string_view const chunk = chat ? "chat.completion.chunk" : "text_completion";
  std::string_view const one_choice = R"(,"choices":[{"index":0,)";
  chunk_prefix_ = "data: " + head(chunk, identity, one_choice);
  whole_prefix_ = head(chat ? "chat.completion" : "text_completion", identity, one_choice);
  usage_prefix_ = "data: " + head(chunk, identity, R"(,"choices":[],"usage":)");
  chunk_suffix_ = include_usage ? ",\"usage\":null}\n\n" : "}\n\n";
}

void reply_writer::append_begin(std::string& out) const {
  if (kind_ != endpoint::chat_completions) return;
  out += chunk_prefix_;
  out += R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])";
  out += chunk_suffix_;
}

void reply_writer::append_text_chunk(std::string& out, std::string_view field,
                                     std::string_view text) const {
  out += chunk_prefix_;
  if (kind_ == endpoint::chat_completions) {
    out += R"("delta":{")";
    out += field;
    out += "\":";
    append_json_string(out, text);
    out += '}';
  } else {
    out += R"("text":)";
    append_json_string(out, text);
  }
  out += R"(,"logprobs":null,"finish_reason":null}])";
  out += chunk_suffix_;
}

void reply_writer::append_delta(std::string& out, engine::output_delta const& delta) const {
  if (!delta.reasoning.empty()) append_text_chunk(out, "reasoning_content", delta.reasoning);
  if (!delta.content.empty()) append_text_chunk(out, "content", delta.content);
}

void reply_writer::append_end(std::string& out, engine::result const& outcome) const {
  out += chunk_prefix_;
  out += kind_ == endpoint::chat_completions ? R"("delta":{})" : R"("text":"")";
  out += R"(,"logprobs":null,"finish_reason":")";
  out += finish_name(outcome.finish);
  out += "\"}]";
  append_measurements(out, outcome);
  out += chunk_suffix_;
  if (include_usage_) {
    out += usage_prefix_;
    append_usage(out, outcome.usage);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

std::string reply_writer::whole(std::string_view reasoning, std::string_view content,
                                engine::result const& outcome) const {
  std::string out = whole_prefix_;
  if (kind_ == endpoint::chat_completions) {
    out += R"("message":{"role":"assistant","content":)";
    if (content.empty() && !reasoning.empty()) {
      out += "null";
    } else {
      append_json_string(out, content);
    }
    if (!reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      append_json_string(out, reasoning);
    }
    out += '}';
  } else {
    out += R"("text":)";
    append_json_string(out, content);
  }
  out += R"(,"logprobs":null,"finish_reason":")";
  out += finish_name(outcome.finish);
  out += R"("}],"usage":)";
  append_usage(out, outcome.usage);
  append_measurements(out, outcome);
  out += "}\n";
  return out;
}

void append_error_frame(std::string& out, std::string_view error_body) {
  out += "data: ";
  out += error_body;
  out += "\n\n";
}

}  // namespace qwen38::api

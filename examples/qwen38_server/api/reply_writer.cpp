// SPDX-License-Identifier: Apache-2.0
#include "api/reply_writer.hpp"

#include <algorithm>

#include "api/json_text.hpp"
#include "api/logprobs_text.hpp"
#include "api/speculation_text.hpp"

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

std::string_view finish_name(engine::finish_reason finish, bool called) {
  if (finish == engine::finish_reason::length) return "length";
  return called ? "tool_calls" : "stop";
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

  out += R"(},"speculative":{)";
  append_speculation(out, outcome.speculation);
  out += '}';
}

}  // namespace

reply_writer::reply_writer(endpoint kind, reply_identity const& identity, bool include_usage,
                           text::tokenizer const* tokens)
    : kind_(kind), include_usage_(include_usage), tokens_(tokens) {
  bool const chat = kind == endpoint::chat_completions;
  std::string_view const chunk = chat ? "chat.completion.chunk" : "text_completion";
  std::string_view const one_choice = R"(,"choices":[{"index":0,)";
  chunk_prefix_ = "data: " + head(chunk, identity, one_choice);
  whole_prefix_ = head(chat ? "chat.completion" : "text_completion", identity, one_choice);
  usage_prefix_ = "data: " + head(chunk, identity, R"(,"choices":[],"usage":)");
  chunk_suffix_ = include_usage ? ",\"usage\":null}\n\n" : "}\n\n";
  call_prefix_ = "call_" + identity.id.substr(identity.id.find('-') + 1) + '_';
}

void reply_writer::append_begin(std::string& out) const {
  if (kind_ != endpoint::chat_completions) return;
  out += chunk_prefix_;
  out += R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])";
  out += chunk_suffix_;
}

/// The member of a choice, with what has come since the last one.
void reply_writer::append_logprobs(std::string& out) {
  out += R"(,"logprobs":)";
  if (logprobs_.empty() || tokens_ == nullptr) {
    out += "null";
  } else if (kind_ == endpoint::chat_completions) {
    append_chat_logprobs(out, *tokens_, logprobs_);
  } else {
    append_completion_logprobs(out, *tokens_, logprobs_, text_offset_);
  }
  logprobs_.clear();
}

void reply_writer::append_text_chunk(std::string& out, std::string_view field,
                                     std::string_view text) {
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
  append_logprobs(out);
  out += R"(,"finish_reason":null}])";
  out += chunk_suffix_;
}

void reply_writer::append_call_id(std::string& out, int index) const {
  append_json_string(out, std::string_view(call_prefix_ + std::to_string(index)));
}

void reply_writer::append_call_chunk(std::string& out, text::tool_event const& event) {
  bool const begins = event.what == text::tool_event::kind::call;
  out += chunk_prefix_;
  out += R"("delta":{"tool_calls":[{"index":)";
  append_json_integer(out, event.index);
  if (begins) {
    out += R"(,"id":)";
    append_call_id(out, event.index);
    out += R"(,"type":"function")";
  }
  out += R"(,"function":{)";
  if (begins) {
    out += R"("name":)";
    append_json_string(out, std::string_view(event.text));
    out += ',';
  }
  out += R"("arguments":)";
  append_json_string(out, begins ? std::string_view() : std::string_view(event.text));
  out += "}}]}";
  append_logprobs(out);
  out += R"(,"finish_reason":null}])";
  out += chunk_suffix_;
}

void reply_writer::append_step(std::string& out, answer_step const& step) {
  if (!step.reasoning.empty()) append_text_chunk(out, "reasoning_content", step.reasoning);
  logprobs_.insert(logprobs_.end(), step.logprobs.begin(), step.logprobs.end());
  for (text::tool_event const& event : step.events) {
    if (event.what == text::tool_event::kind::content) {
      append_text_chunk(out, "content", event.text);
    } else {
      append_call_chunk(out, event);
    }
  }
}

void reply_writer::append_end(std::string& out, engine::result const& outcome, bool called) {
  out += chunk_prefix_;
  out += kind_ == endpoint::chat_completions ? R"("delta":{})" : R"("text":"")";
  append_logprobs(out);
  out += R"(,"finish_reason":")";
  out += finish_name(outcome.finish, called);
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

std::string reply_writer::whole(answer const& all, engine::result const& outcome, bool called) {
  std::string out = whole_prefix_;
  if (kind_ == endpoint::chat_completions) {
    out += R"("message":{"role":"assistant","content":)";
    if (all.content.empty() && !(all.reasoning.empty() && all.calls.empty())) {
      out += "null";
    } else {
      append_json_string(out, std::string_view(all.content));
    }
    if (!all.reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      append_json_string(out, std::string_view(all.reasoning));
    }
    if (!all.calls.empty()) out += R"(,"tool_calls":[)";
    for (std::size_t i = 0; i < all.calls.size(); ++i) {
      out += i > 0 ? R"(,{"id":)" : R"({"id":)";
      append_call_id(out, static_cast<int>(i));
      out += R"(,"type":"function","function":{"name":)";
      append_json_string(out, std::string_view(all.calls[i].name));
      out += R"(,"arguments":)";
      append_json_string(out, std::string_view(all.calls[i].arguments));
      out += "}}";
    }
    if (!all.calls.empty()) out += ']';
    out += '}';
  } else {
    out += R"("text":)";
    append_json_string(out, std::string_view(all.content));
  }
  logprobs_ = all.logprobs;
  append_logprobs(out);
  out += R"(,"finish_reason":")";
  out += finish_name(outcome.finish, called);
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

// SPDX-License-Identifier: Apache-2.0
#include "api/answer_reader.hpp"

#include <utility>

namespace qwen38::api {

void answer::add(answer_step const& step) {
  reasoning += step.reasoning;
  for (text::tool_event const& event : step.events) {
    switch (event.what) {
      case text::tool_event::kind::content: content += event.text; break;
      case text::tool_event::kind::call: calls.push_back({event.text, {}}); break;
      case text::tool_event::kind::arguments: calls.back().arguments += event.text; break;
    }
  }
  logprobs.insert(logprobs.end(), step.logprobs.begin(), step.logprobs.end());
}

answer_reader::answer_reader(std::shared_ptr<text::tool_signatures const> tools) {
  if (tools != nullptr) parser_.emplace(std::move(tools));
}

answer_step answer_reader::read(engine::output_delta const& delta) {
  answer_step out;
  out.reasoning = delta.reasoning;
  if (parser_) {
    parser_->push(delta.content, out.events);
  } else if (!delta.content.empty()) {
    out.events.push_back({text::tool_event::kind::content, 0, delta.content});
  }
  for (auto const& one : delta.logprobs) {
    if (!one.in_reasoning) out.logprobs.push_back(one);
  }
  return out;
}

answer_step answer_reader::finish(engine::result const& outcome) {
  answer_step out;
  // A stop string of the client cuts like the limit does.
  bool const complete =
      outcome.finish == engine::finish_reason::stop && !outcome.stop_string.has_value();
  if (parser_) parser_->finish(complete, out.events);
  return out;
}

}  // namespace qwen38::api

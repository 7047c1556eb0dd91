// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.hpp"

#include <algorithm>
#include <utility>

namespace qwen38::engine {

generation::generation(request wanted, text::tokenizer const& source, std::int32_t valid_ids)
    : wanted_(std::move(wanted)),
      sampler_(wanted_.sampling, wanted_.stop_ids, valid_ids),
      text_(source, wanted_.stop_strings, wanted_.split_reasoning && wanted_.starts_in_reasoning) {}

std::int32_t generation::sample(std::span<float const> logits, sampler_scratch& scratch) const {
  return sampler_.sample(logits, prompt_tokens() + completion_tokens_,
                         completion_tokens_ < wanted_.min_tokens, scratch);
}

void generation::add(std::int32_t id) {
  ++completion_tokens_;
  delta_.ids.push_back(id);
  sampler_.add(id);
  if (std::ranges::find(wanted_.stop_ids, id) != wanted_.stop_ids.end()) {
    end(finish_reason::stop);
    return;
  }
  if (text_.in_reasoning()) ++reasoning_tokens_;
  text::text_delta const text = text_.push(id);
  append(text);
  if (text.stopped) {
    end(finish_reason::stop);
  } else if (completion_tokens_ == wanted_.max_tokens) {
    end(finish_reason::length);
  }
}

void generation::end(finish_reason reason, std::string message) {
  if (ended_) return;
  ended_ = reason;
  message_ = std::move(message);
  if (reason != finish_reason::stop && reason != finish_reason::length) return;
  // The text ends by itself, so what was held back is printed, unless it now completes a stop
  // string.
  text::text_delta const rest = text_.finish();
  append(rest);
  if (rest.stopped) ended_ = finish_reason::stop;
}

output_delta generation::take_delta() {
  return std::exchange(delta_, {});
}

result generation::outcome() const {
  result out;
  out.finish = *ended_;
  out.stop_string = text_.matched_stop();
  out.message = message_;
  out.usage.prompt_tokens = prompt_tokens();
  out.usage.completion_tokens = completion_tokens_;
  out.usage.reasoning_tokens = reasoning_tokens_;
  return out;
}

void generation::append(text::text_delta const& text) {
  delta_.reasoning += text.reasoning;
  delta_.content += text.content;
}

}  // namespace qwen38::engine

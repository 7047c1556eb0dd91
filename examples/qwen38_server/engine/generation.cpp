// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.hpp"

#include <algorithm>
#include <utility>

#include "engine/logprobs.hpp"

namespace qwen38::engine {

generation::generation(request wanted, text::tokenizer const& source, std::int32_t valid_ids)
    : wanted_(std::move(wanted)),
      sampler_(wanted_.sampling, wanted_.stop_ids, valid_ids),
      text_(source, wanted_.stop_strings, wanted_.split_reasoning && wanted_.starts_in_reasoning),
      valid_ids_(valid_ids) {
  if (wanted_.grammar.grammar != nullptr) constraint_.emplace(wanted_.grammar);
}

bool generation::must_end_reasoning() const {
  return wanted_.thinking_budget && text_.in_reasoning() &&
         reasoning_tokens_ >= *wanted_.thinking_budget;
}

std::span<std::uint32_t const> generation::mask() {
  auto const put = [&](std::int32_t id) {
    mask_[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1}
                                                << static_cast<std::uint32_t>(id) % 32;
  };
  if (must_end_reasoning()) {
    mask_.assign((static_cast<std::size_t>(valid_ids_) + 31) / 32, 0);
    put(wanted_.end_reasoning_id);
    return mask_;
  }
  if (!constraint_) return {};
  auto const allowed = constraint_->mask();
  mask_.assign(allowed.begin(), allowed.end());
  if (constraint_->may_end()) {
    for (std::int32_t const id : wanted_.stop_ids) {
      if (id < valid_ids_) put(id);
    }
  }
  return mask_;
}

std::int32_t generation::sample(std::span<float const> logits, sampler_scratch& scratch) {
  bool const may_stop = completion_tokens_ >= wanted_.min_tokens ||
                        (constraint_ && constraint_->must_end()) || must_end_reasoning();
  auto const id =
      sampler_.sample(logits, prompt_tokens() + completion_tokens_, !may_stop, mask(), scratch);
  if (wanted_.top_logprobs) {
    auto const valid = logits.first(static_cast<std::size_t>(valid_ids_));
    logprobs_ = logprobs_of(valid, id, *wanted_.top_logprobs);
  }
  return id;
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
  if (logprobs_) {
    logprobs_->in_reasoning = text_.in_reasoning();
    delta_.logprobs.push_back(*std::exchange(logprobs_, std::nullopt));
  }
  text::text_delta const text = text_.push(id);
  append(text);
  if (constraint_) constraint_->advance(id);
  if (text.stopped || (constraint_ && constraint_->must_end() && wanted_.stop_ids.empty())) {
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

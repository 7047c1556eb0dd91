// SPDX-License-Identifier: Apache-2.0
#include "api/handler.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <qpn/version.hpp>
#include <utility>

#include "api/chat_completions.hpp"
#include "api/completions.hpp"
#include "api/models.hpp"
#include "api/tokenize.hpp"

namespace qwen38::api {
namespace {

/// A limit that nobody asked for is cut to what the context leaves; one that was asked for is the
/// engine's to judge.
void fit_default_limit(generation_fields& generation, model_limits const& limits) {
  if (generation.max_tokens_given) return;
  auto& request = generation.request;
  auto const room = limits.max_context - static_cast<std::int64_t>(request.prompt_ids.size());
  request.max_tokens = std::max<std::int64_t>(std::min(request.max_tokens, room), 1);
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
}

/// A request as the engine takes it, and how its answer is read.
struct translated {
  generation_fields generation;
  std::shared_ptr<text::tool_signatures const> tools;  // null: no calls are looked for
};

translated translate_chat(nlohmann::ordered_json const& body, settings const& served,
                          model_limits const& limits, text::tokenizer const& tokenizer) {
  auto chat = parse_chat_request(body, served, limits);
  auto& request = chat.generation.request;
  request.prompt_ids =
      text::encode_chat(tokenizer, chat.messages, chat.tools.rendered, chat.options);
  if (request.thinking_budget) {
    auto const end = tokenizer.token_to_id("</think>");
    if (!end) {
      throw field_error(error_kind::unsupported, "thinking_budget",
                        "thinking_budget: this model has no token that ends its reasoning.");
    }
    request.end_reasoning_id = *end;
  }
  return {std::move(chat.generation), std::move(chat.tools.signatures)};
}

translated translate_completion(nlohmann::ordered_json const& body, settings const& served,
                                model_limits const& limits, text::tokenizer const& tokenizer) {
  auto completion = parse_completion_request(body, served, limits);
  auto& ids = completion.generation.request.prompt_ids;
  if (auto* const given = std::get_if<std::vector<std::int32_t>>(&completion.prompt)) {
    ids = std::move(*given);
  } else {
    ids = tokenizer.encode(std::get<std::string>(completion.prompt));
  }
  return {std::move(completion.generation), nullptr};
}

/// For the operator, who must learn what the client is not told. Only our own sentences: a foreign
/// exception may quote the prompt.
void log_failure(std::string const& id, std::exception const& cause) {
  bool const own = dynamic_cast<error const*>(&cause) != nullptr;
  std::fprintf(stderr, "request %s failed: %s\n", id.c_str(),
               own ? cause.what() : "unexpected exception");
}

std::int64_t seconds_now() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

handler::handler(engine::service& engine, text::tokenizer const& tokenizer, settings served)
    : engine_(engine),
      tokenizer_(tokenizer),
      words_(std::make_shared<text::vocabulary const>(tokenizer)),
      served_(std::move(served)),
      limits_{engine.max_context(), tokenizer.vocab_size(), engine.supports_drafts()},
      traces_(std::make_shared<telemetry>()) {
  traces_->log = served_.log;
  traces_->launches = served_.launches;
  if (served_.model_id.empty()) {
    throw error(error_kind::invalid_argument, "The served model needs a name, got an empty one.");
  }
  if (served_.defaults.max_tokens < 1) {
    throw error(error_kind::invalid_argument, "The default of max_tokens must be at least 1.");
  }
}

std::shared_ptr<exchange> handler::open(endpoint kind, std::string id,
                                        std::shared_ptr<reply_sink> sink) const {
  return std::make_shared<exchange>(engine_, kind, std::move(id), std::move(sink), traces_);
}

void handler::serve(std::shared_ptr<exchange> const& call, std::string_view body) const noexcept {
  try {
    submit(call, body);
  } catch (std::exception const& cause) {
    auto what = describe_error(cause);
    what.retry_after_s = engine_.get_state().retry_after_s;
    if (what.status == 500) log_failure(call->id(), cause);
    call->fail(what);
  }
}

void handler::submit(std::shared_ptr<exchange> const& call, std::string_view body) const {
  bool const chat = call->kind() == endpoint::chat_completions;
  auto [generation, tools] = [&] {
    auto const parsed = parse_json(body, "The request body");
    return chat ? translate_chat(parsed, served_, limits_, tokenizer_)
                : translate_completion(parsed, served_, limits_, tokenizer_);
  }();
  fit_default_limit(generation, limits_);
  auto& request = generation.request;
  if (generation.grammar != nullptr) request.grammar = {words_, std::move(generation.grammar)};
  reply_identity const identity{(chat ? "chatcmpl-" : "cmpl-") + call->id(), seconds_now(),
                                served_.model_id};
  reply_writer writer(call->kind(), identity, generation.include_usage,
                      request.top_logprobs ? &tokenizer_ : nullptr);
  exchange::submit(call, std::move(request), std::move(writer), answer_reader(std::move(tools)),
                   generation.stream);
}

template <class Answer>
reply handler::answer(Answer const& make) const noexcept {
  try {
    return make();
  } catch (std::exception const& cause) {
    return to_reply(describe_error(cause));
  }
}

reply handler::tokenize(std::string_view body) const noexcept {
  return answer([&] {
    auto const parsed = parse_json(body, "The request body");
    bool const chat = parsed.is_object() && parsed.contains("messages");
    auto const generation = chat ? translate_chat(parsed, served_, limits_, tokenizer_)
                                 : translate_completion(parsed, served_, limits_, tokenizer_);
    return tokens_reply(parsed, generation.generation.request.prompt_ids, limits_, tokenizer_);
  });
}
reply handler::detokenize(std::string_view body) const noexcept {
  return answer(
      [&] { return text_reply(parse_json(body, "The request body"), limits_, tokenizer_); });
}

reply handler::version() const {
  return {200, "{\"version\":\"" QPN_VERSION_STRING "\"}\n"};
}
reply handler::metrics() const {
  metrics::log_counts log;
  if (served_.log) log = {served_.log->lines(), served_.log->lost()};
  return traces_->numbers.exposition(engine_.get_state(), log);
}
reply handler::models() const {
  return models_reply(served_, limits_);
}
reply handler::model(std::string_view id) const {
  return model_reply(served_, limits_, id);
}
reply handler::health(bool deep) const {
  auto const now = engine_.get_state();
  auto const silence = watch_.look(now, progress_watch::clock::now());
  return deep ? deep_health_reply(now, silence, served_.stall_limit) : health_reply(now);
}

}  // namespace qwen38::api

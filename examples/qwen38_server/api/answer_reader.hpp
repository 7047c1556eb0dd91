// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.hpp"
#include "text/tool_call_parser.hpp"

namespace qwen38::api {

/// What one step adds to an answer, its calls found.
struct answer_step {
  std::string reasoning;
  std::vector<text::tool_event> events;          ///< content and calls, in their order
  std::vector<engine::token_logprobs> logprobs;  ///< of tokens that are no reasoning
};

/// A whole answer.
struct answer {
  struct call {
    std::string name;
    std::string arguments;  ///< JSON text
  };
  std::string reasoning;
  std::string content;
  std::vector<call> calls;
  std::vector<engine::token_logprobs> logprobs;

  void add(answer_step const& step);
};

/// From what the engine puts out to what a client is told.
class answer_reader {
 public:
  /// tools: null: calls are not looked for, all is content.
  explicit answer_reader(std::shared_ptr<text::tool_signatures const> tools);

  [[nodiscard]] answer_step read(engine::output_delta const& delta);
  /// What was held back. Once, at the end.
  [[nodiscard]] answer_step finish(engine::result const& outcome);

  /// The answer called functions, and the last call is whole.
  [[nodiscard]] bool called() const noexcept {
    return parser_ && parser_->calls() > 0 && !parser_->is_cut();
  }

 private:
  std::optional<text::tool_call_parser> parser_;
};

}  // namespace qwen38::api

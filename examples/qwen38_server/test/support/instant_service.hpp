// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "engine/service.hpp"
#include "support/error.hpp"

namespace qwen38::test {

/// Answers inside submit(), so that a run is one thread's. Ends the process if a request is outside
/// its contract.
class instant_service final : public engine::service {
 public:
  std::uint64_t submit(engine::request wanted, std::shared_ptr<engine::observer> sink) override {
    if (static_cast<std::int64_t>(wanted.prompt_ids.size()) + wanted.max_tokens > max_context()) {
      throw error(error_kind::context_length_exceeded, "Too long.");
    }
    if (wanted.prompt_ids.empty() || wanted.max_tokens < 1 ||
        wanted.min_tokens > wanted.max_tokens || wanted.draft_tokens < 0 ||
        wanted.draft_tokens > engine::max_draft_tokens) {
      std::fputs("a request outside its contract reached the engine\n", stderr);
      std::abort();
    }
    sink->on_output({.reasoning = "r", .content = "c", .ids = {1}});
    sink->on_finish({});
    return 1;
  }
  void cancel(std::uint64_t /*ticket*/) noexcept override {}
  void drain() noexcept override {}
  [[nodiscard]] state get_state() const override { return {}; }
  [[nodiscard]] std::int64_t max_context() const noexcept override { return 4096; }
  [[nodiscard]] bool supports_drafts() const noexcept override { return true; }
};

}  // namespace qwen38::test

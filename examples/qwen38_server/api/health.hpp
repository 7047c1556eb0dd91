// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

#include "api/reply.hpp"
#include "engine/service.hpp"

namespace qwen38::api {

/// Tells an engine that moves from one that is stuck, by looks at its state at any times. Any
/// thread may look.
class progress_watch {
 public:
  using clock = std::chrono::steady_clock;

  /// How long the engine has had work and ended no turn: zero at the first look that finds it busy
  /// after it moved or rested, since nobody saw when its work began.
  clock::duration look(engine::service::state const& now, clock::time_point at);

 private:
  std::mutex mutex_;
  std::uint64_t turns_ = 0;
  std::optional<clock::time_point> since_;  // the first look at `turns_` that found work
};

/// GET /health: 200 `ok`; 503 `failed` once the engine's thread has ended by an error, and
/// `draining` while what runs is brought to its end.
[[nodiscard]] reply health_reply(engine::service::state const& now);

/// GET /health?deep=1: also 503 `stalled` where the silence has reached the limit.
[[nodiscard]] reply deep_health_reply(engine::service::state const& now,
                                      progress_watch::clock::duration silence,
                                      std::chrono::seconds limit);

/// GET /health before there is an engine: 503 `loading`.
[[nodiscard]] reply loading_health_reply();

}  // namespace qwen38::api

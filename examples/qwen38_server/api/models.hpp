// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "api/reply.hpp"
#include "api/settings.hpp"
#include "engine/service.hpp"

namespace qwen38::api {

/// GET /v1/models: the model and its aliases.
[[nodiscard]] reply models_reply(settings const& served, model_limits const& limits);

/// GET /v1/models/{id}: one of them, or 404.
[[nodiscard]] reply model_reply(settings const& served, model_limits const& limits,
                                std::string_view id);

/// GET /health: 200 while the engine serves, 503 once its thread has failed.
[[nodiscard]] reply health_reply(engine::service::state const& now);

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "api/reply.hpp"
#include "api/settings.hpp"

namespace qwen38::api {

/// GET /v1/models: the model and its aliases.
[[nodiscard]] reply models_reply(settings const& served, model_limits const& limits);

/// GET /v1/models/{id}: one of them, or 404; any name with settings::accept_any_model.
[[nodiscard]] reply model_reply(settings const& served, model_limits const& limits,
                                std::string_view id);

}  // namespace qwen38::api

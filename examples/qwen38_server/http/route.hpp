// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace qwen38::http {

enum class action {
  chat_completions,
  completions,
  tokenize,
  detokenize,
  version,
  metrics,
  models,
  model,
  health,
  report,
  not_found,
  method_not_allowed
};

struct route {
  action what = action::not_found;
  std::string model_id;    ///< of action::model, percent-decoded
  bool deep = false;       ///< of action::health: the query has deep=1
  std::string_view allow;  ///< of action::method_not_allowed: the methods that the path has
};

/// What a request line asks for. Paths are compared as they stand, without any normalisation; of a
/// query only /health?deep=1 has a meaning; the absolute form (`GET http://host/path`) is
/// understood.
[[nodiscard]] route resolve(std::string_view method, std::string_view target);

}  // namespace qwen38::http

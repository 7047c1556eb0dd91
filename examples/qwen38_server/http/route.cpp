// SPDX-License-Identifier: Apache-2.0
#include "http/route.hpp"

#include <algorithm>
#include <charconv>

namespace qwen38::http {
namespace {

constexpr std::string_view models_path = "/v1/models";

/// The target without the scheme and host of the absolute form.
std::string_view origin_form(std::string_view target) {
  if (target.starts_with("http://")) {
    auto const slash = target.find('/', 7);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target;
}

bool has_deep(std::string_view query) {
  while (!query.empty()) {
    auto const end = std::min(query.find('&'), query.size());
    if (query.substr(0, end) == "deep=1") return true;
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return false;
}

/// A broken escape stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      auto const* const digits = text.data() + i + 1;
      if (std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
        out += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

bool takes_a_body(action what) {
  return what == action::chat_completions || what == action::completions ||
         what == action::tokenize || what == action::detokenize;
}

action action_of(std::string_view path) {
  if (path == "/v1/chat/completions") return action::chat_completions;
  if (path == "/v1/completions") return action::completions;
  if (path == "/tokenize") return action::tokenize;
  if (path == "/detokenize") return action::detokenize;
  if (path == "/version") return action::version;
  if (path == "/metrics") return action::metrics;
  if (path == "/health") return action::health;
  if (path == "/v1/internal/report") return action::report;
  if (path == models_path) return action::models;
  if (path.starts_with("/v1/models/") && path.size() > models_path.size() + 1) return action::model;
  return action::not_found;
}

}  // namespace

route resolve(std::string_view method, std::string_view target) {
  target = origin_form(target.substr(0, target.find('#')));
  auto const path = target.substr(0, target.find('?'));
  route out;
  out.what = action_of(path);
  if (out.what == action::not_found) return out;
  bool const posts = takes_a_body(out.what);
  if (posts ? method != "POST" : method != "GET" && method != "HEAD") {
    out.what = action::method_not_allowed;
    out.allow = posts ? "POST" : "GET, HEAD";
  } else if (out.what == action::health && path.size() < target.size()) {
    out.deep = has_deep(target.substr(path.size() + 1));
  } else if (out.what == action::model) {
    out.model_id = percent_decoded(path.substr(models_path.size() + 1));
  }
  return out;
}

}  // namespace qwen38::http

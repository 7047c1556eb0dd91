// SPDX-License-Identifier: Apache-2.0
#include "api/health.hpp"

#include <string>
#include <string_view>

#include "api/json_text.hpp"

namespace qwen38::api {
namespace {

void append_count(std::string& out, std::string_view name, std::uint64_t value) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_integer(out, static_cast<std::int64_t>(value));
}

reply begin_reply(std::string_view status, engine::service::state const& now) {
  reply out;
  out.status = status == "ok" ? 200 : 503;
  out.body = R"({"status":")";
  out.body += status;
  out.body += '"';
  append_count(out.body, "running", now.running);
  append_count(out.body, "waiting", now.waiting);
  append_count(out.body, "lanes", now.lanes);
  return out;
}

std::string_view status_of(engine::service::state const& now) {
  return now.failed ? "failed" : now.draining ? "draining" : "ok";
}

}  // namespace

progress_watch::clock::duration progress_watch::look(engine::service::state const& now,
                                                     clock::time_point at) {
  std::lock_guard const lock(mutex_);
  bool const has_work = now.running + now.waiting > 0;
  if (!has_work || now.turns != turns_) since_.reset();
  turns_ = now.turns;
  if (!has_work) return {};
  if (!since_) since_ = at;
  return at - *since_;
}

reply health_reply(engine::service::state const& now) {
  auto out = begin_reply(status_of(now), now);
  out.body += "}\n";
  return out;
}

reply deep_health_reply(engine::service::state const& now, progress_watch::clock::duration silence,
                        std::chrono::seconds limit) {
  auto out = begin_reply(!now.failed && silence >= limit ? "stalled" : status_of(now), now);
  append_count(out.body, "turns", now.turns);
  out.body += R"(,"silent_s":)";
  append_json_decimal(out.body, std::chrono::duration<double>(silence).count());
  out.body += "}\n";
  return out;
}

reply loading_health_reply() {
  return {503, "{\"status\":\"loading\"}\n"};
}

}  // namespace qwen38::api

// SPDX-License-Identifier: Apache-2.0
#include "api/health.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace qwen38::api {
namespace {

using namespace std::chrono_literals;
using state = engine::service::state;
using moment = progress_watch::clock::time_point;

state working(std::uint64_t turns) {
  state out;
  out.running = 1;
  out.waiting = 2;
  out.lanes = 4;
  out.turns = turns;
  return out;
}

state resting(std::uint64_t turns) {
  state out;
  out.lanes = 4;
  out.turns = turns;
  return out;
}

std::string status_in(reply const& from) {
  return nlohmann::json::parse(from.body).at("status");
}

TEST(health, says_what_the_engine_does) {
  auto now = working(7);
  EXPECT_EQ(health_reply(now).status, 200);
  EXPECT_EQ(health_reply(now).body,
            "{\"status\":\"ok\",\"running\":1,\"waiting\":2,\"lanes\":4}\n");
  now.draining = true;
  EXPECT_EQ(health_reply(now).status, 503);
  EXPECT_EQ(status_in(health_reply(now)), "draining");
  now.failed = true;
  EXPECT_EQ(health_reply(now).status, 503);
  EXPECT_EQ(status_in(health_reply(now)), "failed");
  EXPECT_EQ(loading_health_reply().status, 503);
  EXPECT_EQ(status_in(loading_health_reply()), "loading");
}

TEST(health, deep_gives_up_on_an_engine_that_is_silent_for_too_long) {
  auto now = working(7);
  EXPECT_EQ(deep_health_reply(now, 59s, 60s).status, 200);
  EXPECT_EQ(deep_health_reply(now, 59s, 60s).body,
            "{\"status\":\"ok\",\"running\":1,\"waiting\":2,\"lanes\":4,\"turns\":7,"
            "\"silent_s\":59.000}\n");
  EXPECT_EQ(deep_health_reply(now, 60s, 60s).status, 503);
  EXPECT_EQ(status_in(deep_health_reply(now, 60s, 60s)), "stalled");
  now.draining = true;
  EXPECT_EQ(status_in(deep_health_reply(now, 60s, 60s)), "stalled");
  EXPECT_EQ(status_in(deep_health_reply(now, 0s, 60s)), "draining");
  now.failed = true;
  EXPECT_EQ(status_in(deep_health_reply(now, 60s, 60s)), "failed");
}

TEST(progress_watch, counts_only_work_without_a_turn) {
  progress_watch watch;
  moment const start{};
  EXPECT_EQ(watch.look(resting(5), start), 0s);
  // An hour of rest is no silence, nor is work whose begin nobody saw.
  EXPECT_EQ(watch.look(working(5), start + 3600s), 0s);
  EXPECT_EQ(watch.look(working(5), start + 3610s), 10s);
  EXPECT_EQ(watch.look(working(5), start + 3700s), 100s);
  EXPECT_EQ(watch.look(working(6), start + 3701s), 0s);
  EXPECT_EQ(watch.look(working(6), start + 3702s), 1s);
  EXPECT_EQ(watch.look(resting(6), start + 3703s), 0s);
  EXPECT_EQ(watch.look(working(6), start + 3800s), 0s);
  EXPECT_EQ(watch.look(working(6), start + 3801s), 1s);
}

TEST(progress_watch, a_request_in_the_queue_is_work_too) {
  progress_watch watch;
  auto queued = resting(1);
  queued.waiting = 1;
  EXPECT_EQ(watch.look(queued, moment{}), 0s);
  EXPECT_EQ(watch.look(queued, moment{} + 5s), 5s);
}

}  // namespace
}  // namespace qwen38::api

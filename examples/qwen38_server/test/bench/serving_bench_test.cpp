// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/serving_client.hpp"
#include "bench/serving_report.hpp"
#include "test/http/server_fixture.hpp"

namespace qwen38::bench {
namespace {

using json = nlohmann::ordered_json;

request_trace trace(std::vector<double> arrivals, double latency, std::int64_t tokens) {
  request_trace out;
  out.arrivals = std::move(arrivals);
  out.latency = latency;
  out.input_tokens = 10;
  out.output_tokens = tokens;
  return out;
}

TEST(percentile, interpolates_between_ranks) {
  EXPECT_EQ(percentile({}, 50), 0);
  EXPECT_EQ(percentile({7}, 99), 7);
  EXPECT_EQ(percentile({30, 10, 20}, 50), 20);
  EXPECT_EQ(percentile({40, 10, 20, 30}, 50), 25);
  EXPECT_EQ(percentile({10, 20}, 0), 10);
  EXPECT_EQ(percentile({10, 20}, 100), 20);
  EXPECT_DOUBLE_EQ(percentile({0, 100}, 99), 99);
}

TEST(serving_report, has_the_usual_definitions) {
  auto const report =
      serving_report({trace({100, 150, 250}, 300, 5), trace({200}, 210, 1)}, 2.0, {});
  EXPECT_EQ(report["completed"], 2);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["total_input_tokens"], 20);
  EXPECT_EQ(report["total_output_tokens"], 6);
  EXPECT_EQ(report["request_throughput"], 1.0);
  EXPECT_EQ(report["output_throughput"], 3.0);
  EXPECT_EQ(report["total_token_throughput"], 13.0);
  EXPECT_EQ(report["mean_ttft_ms"], 150.0);
  EXPECT_EQ(report["median_ttft_ms"], 150.0);
  EXPECT_EQ(report["std_ttft_ms"], 50.0);
  EXPECT_EQ(report["p99_ttft_ms"], 199.0);
  EXPECT_EQ(report["mean_tpot_ms"], 50.0) << "of the first alone: (300 - 100) / 4";
  EXPECT_EQ(report["mean_itl_ms"], 75.0);
  EXPECT_EQ(report["mean_e2el_ms"], 255.0);
  EXPECT_EQ(report["tokens_per_chunk"], 1.5);
  EXPECT_FALSE(report.contains("request_goodput"));
  EXPECT_FALSE(report.contains("spec_decode_acceptance_length"));
}

TEST(serving_report, goodput_counts_requests_that_keep_every_limit) {
  std::vector<request_trace> const traces = {trace({100}, 500, 5), trace({300}, 500, 5),
                                             trace({100}, 900, 5), trace({100}, 500, 2)};
  auto const goodput = [&](service_level wanted) {
    return serving_report(traces, 1.0, wanted)["request_goodput"].get<double>();
  };
  EXPECT_EQ(goodput({.ttft = 100}), 3);
  EXPECT_EQ(goodput({.tpot = 100}), 2);
  EXPECT_EQ(goodput({.e2el = 500}), 3);
  EXPECT_EQ(goodput({.ttft = 100, .tpot = 100, .e2el = 500}), 1);
  EXPECT_EQ(goodput({.ttft = 0}), 0);
}

TEST(serving_report, what_failed_counts_nowhere_else) {
  auto broken = trace({1, 2}, 3, 4);
  broken.error = "broke off";
  auto const report = serving_report({broken, trace({}, 3, 4)}, 1.0, {.ttft = 100});
  EXPECT_EQ(report["failed"], 2);
  EXPECT_EQ(report["completed"], 0);
  EXPECT_EQ(report["total_output_tokens"], 0);
  EXPECT_EQ(report["request_goodput"], 0.0);
  for (auto const& [name, value] : report.items()) {
    if (!value.is_number()) continue;
    EXPECT_TRUE(std::isfinite(value.get<double>())) << name;
  }
}

TEST(serving_report, acceptance_is_over_rounds) {
  auto one = trace({1}, 2, 7);
  one.rounds = 3;
  one.drafted = 6;
  one.accepted = 3;
  one.accepted_at = {2, 1};
  auto other = trace({1}, 2, 7);
  other.rounds = 1;
  other.drafted = 3;
  other.accepted = 3;
  other.accepted_at = {1, 1, 1};
  auto const report = serving_report({one, other}, 1.0, {});
  EXPECT_EQ(report["spec_decode_num_drafts"], 4);
  EXPECT_EQ(report["spec_decode_acceptance_length"], 2.5);
  EXPECT_DOUBLE_EQ(report["spec_decode_acceptance_rate"].get<double>(), 100.0 * 6 / 9);
  EXPECT_EQ(report["spec_decode_per_position_acceptance_rates"], json({0.75, 0.5, 0.25}));
}

serving_run run_on(std::uint16_t port, std::size_t count) {
  serving_run out;
  out.port = std::to_string(port);
  out.bodies.assign(count, R"({"stream":true,"stream_options":{"include_usage":true},)"
                           R"("messages":[{"role":"user","content":"hi"}]})");
  out.timeout_s = 30;
  return out;
}

TEST(serving_client, sees_each_chunk_and_the_usage) {
  test::running_server served([](engine::request const& wanted) {
    auto out = test::short_answer(wanted);
    out.steps.insert(out.steps.begin(), test::reasoning_delta("why"));
    out.outcome.usage.cached_tokens = 2;
    out.outcome.speculation = {
        .draft_tokens = 2, .rounds = 4, .drafted = 8, .accepted = 3, .accepted_at = {2, 1}};
    return out;
  });
  auto const seen = run_serving_clients(run_on(served.port(), 5));
  ASSERT_EQ(seen.requests.size(), 5U);
  for (auto const& one : seen.requests) {
    EXPECT_EQ(one.error, "");
    ASSERT_EQ(one.arrivals.size(), 3U)
        << "reasoning and two pieces; no role, finish or usage chunk";
    EXPECT_LE(one.arrivals.front(), one.arrivals.back());
    EXPECT_LE(one.arrivals.back(), one.latency);
    EXPECT_GT(one.input_tokens, 5);
    EXPECT_EQ(one.cached_tokens, 2);
    EXPECT_EQ(one.output_tokens, 3);
    EXPECT_EQ(one.rounds, 4);
    EXPECT_EQ(one.accepted_at, (std::vector<std::int64_t>{2, 1}));
  }
  EXPECT_GT(seen.duration_s, 0);
}

TEST(serving_client, keeps_to_its_concurrency_and_a_rate_spreads_its_requests) {
  std::atomic<int> most = 0;
  test::running_server* server = nullptr;
  test::running_server served([&](engine::request const& wanted) {
    auto const now = server->engine.get_state();
    int const running = static_cast<int>(now.running + now.waiting) + 1;
    if (running > most) most = running;
    return test::short_answer(wanted);
  });
  server = &served;
  auto wanted = run_on(served.port(), 20);
  wanted.concurrency = 2;
  auto const seen = run_serving_clients(wanted);
  EXPECT_LE(most, 2);
  for (auto const& one : seen.requests) EXPECT_EQ(one.error, "");
  wanted.request_rate = 200;  // 19 gaps of 5 ms in the mean
  wanted.seed = 38;
  EXPECT_GT(run_serving_clients(wanted).duration_s, 0.02);
}

TEST(serving_client, refusals_errors_in_a_stream_and_cut_streams_are_failures_with_a_reason) {
  test::running_server served([](engine::request const& wanted) {
    auto out = test::short_answer(wanted);
    out.outcome.finish = engine::finish_reason::failed;
    out.outcome.message = "It broke.";
    return out;
  });
  auto wanted = run_on(served.port(), 1);
  EXPECT_EQ(run_serving_clients(wanted).requests[0].error, "error event: It broke.");
  wanted.bodies = {"{}"};
  EXPECT_NE(run_serving_clients(wanted).requests[0].error.find("status 400"), std::string::npos);
  auto const port = served.port();
  served.stop();
  wanted.port = std::to_string(port);
  EXPECT_NE(run_serving_clients(wanted).requests[0].error.find("no connection"), std::string::npos);
}

/// One reply, byte for byte, in two halves.
std::string error_of_reply(std::string const& reply, std::size_t cut) {
  int const listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&where), size), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size), 0);
  std::thread server([&] {
    int const peer = ::accept(listener, nullptr, nullptr);
    char buffer[4096];
    EXPECT_GT(::read(peer, buffer, sizeof buffer), 0);
    EXPECT_GE(::write(peer, reply.data(), cut), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_GE(::write(peer, reply.data() + cut, reply.size() - cut), 0);
    ::close(peer);
  });
  auto const seen = run_serving_clients(run_on(ntohs(where.sin_port), 1));
  server.join();
  ::close(listener);
  return seen.requests[0].error;
}

TEST(serving_client, a_reply_may_be_cut_anywhere_and_its_end_must_be_proper) {
  std::string const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  std::string const chunk =
      "data: {\"choices\":[{\"delta\":{\"content\":\"\xF0\x9F\x98\xB8\"}}]}\n\n";
  std::string const whole = head + ": keep-alive\n\n" + chunk + "data: [DONE]\n\n";
  for (std::size_t cut = head.size() - 3; cut < whole.size(); ++cut)
    EXPECT_EQ(error_of_reply(whole, cut), "") << cut;
  EXPECT_EQ(error_of_reply(head + chunk, 10), "the stream ended without [DONE]");
  EXPECT_EQ(error_of_reply(head + "data: [DONE]\n\n", 10), "the answer had no text");
  EXPECT_EQ(error_of_reply(head + "data: what\n\ndata: [DONE]\n\n", 10),
            "an event that is no JSON object");
  EXPECT_NE(error_of_reply("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + chunk, 60)
                .find("the reply broke off"),
            std::string::npos);
}

}  // namespace
}  // namespace qwen38::bench

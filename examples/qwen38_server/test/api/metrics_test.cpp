// SPDX-License-Identifier: Apache-2.0
#include "api/metrics.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/handler.hpp"
#include "test/api/api_fixture.hpp"
#include "test/support/prometheus_text.hpp"
#include "test/support/recording_sink.hpp"
#include "test/support/scripted_service.hpp"

namespace qwen38::api {
namespace {

test::prometheus_page read(metrics const& from, engine::service::state const& now = {},
                           metrics::log_counts const& log = {}) {
  auto const page = from.exposition(now, log);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/plain; version=0.0.4; charset=utf-8");
  auto out = test::prometheus_reader::read(page.body);
  EXPECT_EQ(out.problem, "");
  return out;
}

engine::result drafted_result() {
  engine::result out;
  out.finish = engine::finish_reason::length;
  out.usage = {
      .prompt_tokens = 100, .completion_tokens = 21, .reasoning_tokens = 5, .cached_tokens = 64};
  out.speculation = {
      .draft_tokens = 3, .rounds = 8, .drafted = 24, .accepted = 12, .accepted_at = {6, 4, 2}};
  out.timing = {.queued = 20, .prefill = 300, .decode = 2000};
  return out;
}

TEST(prometheus_reader, finds_each_broken_rule) {
  auto const problem = [](std::string const& text) {
    return !test::prometheus_reader::read(text).problem.empty();
  };
  std::string const head = "# HELP a_total x\n# TYPE a_total counter\n";
  EXPECT_FALSE(problem(head + "a_total{b=\"c\\\"d\",e=\"f\"} 1\na_total 2.5e3\n"));
  for (std::string const broken :
       {"a_total 1", "1a 1\n", "a_total\n", "a_total x\n", "a_total  1\n", "a_total{b=c} 1\n",
        "a_total{b=\"c} 1\n", "a_total{b=\"\\x\"} 1\n", "a_total{b=\"1\",b=\"2\"} 1\n",
        "a_total 1\na_total 2\n", "a_total -1\n", "b_total 1\n", "a_total{1=\"c\"} 1\n",
        "a_total 1\n# TYPE a_total counter\n", "# HELP a_total x\n", "# TYPE b_total gauge\n"}) {
    EXPECT_TRUE(problem(head + broken)) << broken;
  }
  std::string const name = "# HELP h x\n# TYPE h histogram\n";
  std::string const low = "h_bucket{le=\"1\"} 2\n";
  std::string const rest = "h_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n";
  EXPECT_FALSE(problem(name + low + rest));
  EXPECT_TRUE(problem(name + "h_bucket{le=\"1\"} 4\n" + rest));
  EXPECT_TRUE(problem(name + low + low + rest));
  EXPECT_TRUE(problem(name + low + "h_sum 4\nh_count 2\n"));
  EXPECT_TRUE(problem(name + low + "h_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 2\n"));
  EXPECT_TRUE(problem(name + low + "h_bucket{le=\"+Inf\"} 3\nh_count 3\n"));
  EXPECT_TRUE(problem("# HELP a x\n# TYPE a counter\na 1\n"));
}

TEST(metrics, a_new_page_has_every_series_at_zero) {
  auto const page = read(metrics());
  EXPECT_GT(page.samples.size(), 100U);
  for (auto const& [series, value] : page.samples) {
    bool const constant = series.starts_with("qwen38_build_info") || series == "qwen38_engine_up";
    EXPECT_EQ(value, constant ? 1 : 0) << series;
  }
}

TEST(metrics, a_finished_request_is_counted_in_each_family_once) {
  metrics numbers;
  numbers.count_end(drafted_result(), 2.4);
  auto const page = read(numbers);
  EXPECT_EQ(page.at("qwen38_requests_finished_total{finished_reason=\"length\"}"), 1);
  EXPECT_EQ(page.at("qwen38_requests_finished_total{finished_reason=\"stop\"}"), 0);
  EXPECT_EQ(page.at("qwen38_prompt_tokens_total"), 100);
  EXPECT_EQ(page.at("qwen38_reasoning_tokens_total"), 5);
  EXPECT_EQ(page.at("qwen38_prefix_cache_queries_total"), 100);
  EXPECT_EQ(page.at("qwen38_prefix_cache_hits_total"), 64);
  EXPECT_EQ(page.at("qwen38_spec_decode_num_drafts_total"), 8);
  EXPECT_EQ(page.at("qwen38_spec_decode_num_draft_tokens_total"), 24);
  EXPECT_EQ(page.at("qwen38_spec_decode_num_accepted_tokens_total"), 12);
  std::string const place = "qwen38_spec_decode_num_accepted_tokens_per_pos_total{position=\"";
  EXPECT_EQ(page.at(place + "0\"}"), 6);
  EXPECT_EQ(page.at(place + "1\"}"), 4);
  EXPECT_EQ(page.at(place + "2\"}"), 2);
  EXPECT_EQ(page.at(place + "3\"}"), 0);
  EXPECT_EQ(page.at("qwen38_request_queue_time_seconds_sum"), 0.02);
  EXPECT_EQ(page.at("qwen38_request_prefill_time_seconds_sum"), 0.3);
  EXPECT_EQ(page.at("qwen38_request_decode_time_seconds_sum"), 2);
  EXPECT_EQ(page.at("qwen38_request_time_per_output_token_seconds_sum"), 0.1);
  EXPECT_EQ(page.at("qwen38_e2e_request_latency_seconds_sum"), 2.4);
  EXPECT_EQ(page.at("qwen38_request_prompt_tokens_bucket{le=\"64\"}"), 0);
  EXPECT_EQ(page.at("qwen38_request_prompt_tokens_bucket{le=\"128\"}"), 1);
  EXPECT_EQ(page.at("qwen38_request_generation_tokens_count"), 1);
}

TEST(metrics, chosen_depths_are_counted_by_depth) {
  metrics numbers;
  auto chosen = drafted_result();
  chosen.speculation.chooses_depth = true;
  chosen.speculation.rounds_at = {1, 2, 3, 0, 5};
  numbers.count_end(chosen, 1);
  numbers.count_end(drafted_result(), 1);
  auto const page = read(numbers);
  std::string const name = "qwen38_spec_decode_chosen_depth_total{k=\"";
  EXPECT_EQ(page.at(name + "0\"}"), 1);
  EXPECT_EQ(page.at(name + "1\"}"), 2);
  EXPECT_EQ(page.at(name + "3\"}"), 3);
  EXPECT_EQ(page.at(name + "7\"}"), 0);
  EXPECT_EQ(page.at(name + "15\"}"), 5);
}

TEST(metrics, plain_decoding_counts_no_drafts_and_an_answer_that_never_began_no_tokens) {
  metrics numbers;
  auto plain = drafted_result();
  plain.speculation = {
      .draft_tokens = 0, .rounds = 20, .drafted = 0, .accepted = 0, .accepted_at = {}};
  numbers.count_end(plain, 1);
  engine::result waiting;
  waiting.finish = engine::finish_reason::queue_timeout;
  waiting.usage.prompt_tokens = 7;
  numbers.count_end(waiting, 30);
  auto const page = read(numbers);
  EXPECT_EQ(page.at("qwen38_spec_decode_num_drafts_total"), 0);
  EXPECT_EQ(page.at("qwen38_prompt_tokens_total"), 100);
  EXPECT_EQ(page.at("qwen38_requests_finished_total{finished_reason=\"queue_timeout\"}"), 1);
  EXPECT_EQ(page.at("qwen38_e2e_request_latency_seconds_count"), 2);
  EXPECT_EQ(page.at("qwen38_request_decode_time_seconds_count"), 1);
}

TEST(metrics, a_value_on_a_bound_belongs_to_its_bucket) {
  metrics numbers;
  numbers.observe_first_token(0.001);
  numbers.observe_first_token(0.0011);
  numbers.observe_first_token(1e6);
  auto const page = read(numbers);
  std::string const bucket = "qwen38_time_to_first_token_seconds_bucket{le=\"";
  EXPECT_EQ(page.at(bucket + "0.001\"}"), 1);
  EXPECT_EQ(page.at(bucket + "0.0025\"}"), 2);
  EXPECT_EQ(page.at(bucket + "600\"}"), 2);
  EXPECT_EQ(page.at(bucket + "+Inf\"}"), 3);
}

TEST(metrics, w26_a_page_stays_small_and_its_series_fixed_whatever_requests_say) {
  metrics numbers;
  std::size_t const series = read(numbers).samples.size();
  std::mt19937_64 random(38);
  for (int i = 0; i < 2000; ++i) {
    auto end = drafted_result();
    end.finish = static_cast<engine::finish_reason>(random() % 6);
    end.usage.prompt_tokens = static_cast<std::int64_t>(random() >> 20);
    end.speculation.accepted_at.assign(random() % 40, std::int64_t{1} << 40);
    numbers.count_end(end, static_cast<double>(random()));
    numbers.count_refusal(static_cast<int>(random() % 1000));
    numbers.count_output(random() >> 20);
    numbers.observe_step_gap(static_cast<double>(random()) * 1e-9);
  }
  auto const page = numbers.exposition({}, {});
  EXPECT_LT(page.body.size(), std::size_t{64} << 10) << "seed 38";
  EXPECT_EQ(read(numbers).samples.size(), series);
}

TEST(metrics, counters_never_shrink_and_every_page_is_whole_while_threads_count) {
  metrics numbers;
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        numbers.count_request(endpoint::completions);
        numbers.count_output(3);
        numbers.observe_step_gap(0.01);
        numbers.count_end(drafted_result(), 0.5);
        numbers.publish_launches({{"sm70/nvfp4/mt1", 1}});
      }
    });
  }
  test::prometheus_page before = read(numbers);
  for (int i = 0; i < 200; ++i) {
    auto const page = read(numbers);
    for (auto const& [series, value] : before.samples) {
      if (series.starts_with("qwen38_gemm")) continue;
      EXPECT_GE(page.at(series), value) << series;
    }
    before = page;
  }
  over = true;
  for (auto& one : threads) one.join();
}

TEST(metrics, the_engines_state_the_log_and_the_launches_are_told) {
  metrics numbers;
  numbers.publish_launches({{"sm70/nvfp4/mt2", 12}, {"sm70/fp8/wide", 3}});
  engine::service::state now;
  now.running = 2;
  now.waiting = 5;
  now.lanes = 8;
  now.kv_pages = 100;
  now.kv_pages_reserved = 25;
  now.kv_pages_cached = 50;
  now.turns = 77;
  now.failed = true;
  auto const page = read(numbers, now, {.lines = 9, .lost = 1});
  EXPECT_EQ(page.at("qwen38_num_requests_running"), 2);
  EXPECT_EQ(page.at("qwen38_num_requests_waiting"), 5);
  EXPECT_EQ(page.at("qwen38_num_lanes"), 8);
  EXPECT_EQ(page.at("qwen38_kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(page.at("qwen38_prefix_cache_usage_perc"), 0.5);
  EXPECT_EQ(page.at("qwen38_engine_turns_total"), 77);
  EXPECT_EQ(page.at("qwen38_engine_up"), 0);
  EXPECT_EQ(page.at("qwen38_request_log_lines_total"), 9);
  EXPECT_EQ(page.at("qwen38_request_log_lost_total"), 1);
  EXPECT_EQ(page.at("qwen38_gemm_launches_total{route=\"sm70/nvfp4/mt2\"}"), 12);
  EXPECT_EQ(page.at("qwen38_gemm_launches_total{route=\"sm70/fp8/wide\"}"), 3);
}

TEST(handler_metrics, a_request_is_counted_from_its_body_to_its_end) {
  test::scripted_service engine(
      [](engine::request const& wanted) {
        test::script out;
        out.steps = {test::content_delta("a"), test::content_delta("b"), test::content_delta("c")};
        out.outcome = drafted_result();
        out.outcome.usage.prompt_tokens = static_cast<std::int64_t>(wanted.prompt_ids.size());
        return out;
      },
      {.lanes = 1, .queue = 1});
  text::tokenizer const tokenizer = test::make_byte_tokenizer();
  auto served = served_settings();
  served.launches = [] { return std::vector<launch_count>{{"sm70/nvfp4/mt1", 4}}; };
  handler requests(engine, tokenizer, served);
  auto const serve = [&](std::string const& body) {
    auto sink = std::make_shared<test::recording_sink>();
    auto const call = requests.open(endpoint::completions, "0123456789abcdef", sink);
    requests.serve(call, body);
    EXPECT_TRUE(sink->wait_until_ended());
  };
  serve(R"({"prompt":"four"})");
  serve(R"({"prompt":"four","stream":true})");
  serve(R"({"prompt":""})");
  serve(R"({"prompt":"x","max_tokens":100000})");
  serve(R"({"prompt":"x","model":"another"})");
  auto const page = test::prometheus_reader::read(requests.metrics().body);
  EXPECT_EQ(page.problem, "");
  EXPECT_EQ(page.at("qwen38_requests_total{endpoint=\"completions\"}"), 5);
  EXPECT_EQ(page.at("qwen38_requests_total{endpoint=\"chat_completions\"}"), 0);
  EXPECT_EQ(page.at("qwen38_requests_finished_total{finished_reason=\"length\"}"), 2);
  EXPECT_EQ(page.at("qwen38_requests_refused_total{status=\"400\"}"), 2);
  EXPECT_EQ(page.at("qwen38_requests_refused_total{status=\"404\"}"), 1);
  EXPECT_EQ(page.at("qwen38_prompt_tokens_total"), 8);
  EXPECT_EQ(page.at("qwen38_generation_tokens_total"), 6);
  EXPECT_EQ(page.at("qwen38_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(page.at("qwen38_inter_token_latency_seconds_count"), 4);
  EXPECT_EQ(page.at("qwen38_gemm_launches_total{route=\"sm70/nvfp4/mt1\"}"), 4);
}

}  // namespace
}  // namespace qwen38::api

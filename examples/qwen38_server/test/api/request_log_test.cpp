// SPDX-License-Identifier: Apache-2.0
#include "api/request_log.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api/call_record.hpp"
#include "support/error.hpp"

namespace qwen38::api {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class log_folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qwen38-log-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path file(std::string const& name = "requests.jsonl") const {
    return folder_ / name;
  }
  static std::vector<std::string> lines_of(fs::path const& path) {
    std::vector<std::string> out;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }

  fs::path folder_;
};

using request_log_file = log_folder;

TEST_F(request_log_file, lines_are_appended_in_order_and_old_ones_stay) {
  for (int start = 0; start < 2; ++start) {
    request_log log({.path = file()});
    for (int i = 0; i < 100; ++i) log.write(std::to_string(100 * start + i));
    log.flush();
    EXPECT_EQ(log.lines(), 100U);
    EXPECT_EQ(log.lost(), 0U);
  }
  auto const lines = lines_of(file());
  ASSERT_EQ(lines.size(), 200U);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], std::to_string(i));
}

TEST_F(request_log_file, the_end_writes_what_still_waits) {
  {
    request_log log({.path = file()});
    log.write("last");
  }
  EXPECT_EQ(lines_of(file()), std::vector<std::string>{"last"});
}

TEST_F(request_log_file, a_path_that_cannot_be_opened_is_one_sentence) {
  try {
    request_log log({.path = folder_ / "none" / "x.jsonl"});
    FAIL();
  } catch (error const& cause) {
    EXPECT_EQ(cause.kind(), error_kind::io);
    EXPECT_NE(std::string(cause.what()).find("none/x.jsonl"), std::string::npos) << cause.what();
  }
}

TEST_F(request_log_file, after_the_flag_the_path_is_opened_again) {
  std::atomic<bool> reopen = false;
  request_log log({.path = file(), .reopen = &reopen});
  log.write("before");
  log.flush();
  fs::rename(file(), file("moved.jsonl"));
  log.write("still before");
  log.flush();
  reopen = true;
  log.write("after");
  log.flush();
  EXPECT_FALSE(reopen);
  EXPECT_EQ(lines_of(file("moved.jsonl")), (std::vector<std::string>{"before", "still before"}));
  EXPECT_EQ(lines_of(file()), std::vector<std::string>{"after"});
}

TEST_F(request_log_file, if_it_cannot_be_opened_again_the_old_file_goes_on_and_it_is_said_once) {
  std::atomic<bool> reopen = false;
  fs::create_directory(file("sub"));
  std::vector<std::string> said;
  request_log log({.path = file("sub/x.jsonl"),
                   .on_fault = [&](std::string const& what) { said.push_back(what); },
                   .reopen = &reopen});
  fs::rename(file("sub"), file("gone"));
  reopen = true;
  log.write("one");
  log.flush();
  EXPECT_EQ(lines_of(file("gone/x.jsonl")), std::vector<std::string>{"one"});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("cannot be opened again"), std::string::npos) << said[0];
  fs::create_directory(file("sub"));
  log.write("two");
  log.flush();
  EXPECT_EQ(lines_of(file("sub/x.jsonl")), std::vector<std::string>{"two"});
}

TEST_F(request_log_file, a_full_disk_loses_lines_counted_and_said_once) {
  std::vector<std::string> said;
  request_log log(
      {.path = "/dev/full", .on_fault = [&](std::string const& what) { said.push_back(what); }});
  for (int i = 0; i < 10; ++i) log.write("x");
  log.flush();
  EXPECT_EQ(log.lines(), 0U);
  EXPECT_EQ(log.lost(), 10U);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("No space left"), std::string::npos) << said[0];
}

// A limit on the size of files stands in for a disk that fills up in the middle of a line.
TEST_F(request_log_file,
       a_disk_that_fills_up_leaves_no_half_line_and_is_used_again_when_it_has_room) {
  struct rlimit whole {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &whole), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  std::vector<std::string> said;
  request_log log(
      {.path = file(), .on_fault = [&](std::string const& what) { said.push_back(what); }});
  log.write(std::string(60, 'a'));
  log.flush();
  struct rlimit narrow = whole;
  narrow.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &narrow), 0);
  log.write(std::string(60, 'b'));
  log.write(std::string(60, 'c'));
  log.flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &whole), 0);
  log.write(std::string(60, 'd'));
  log.flush();
  EXPECT_EQ(lines_of(file()),
            (std::vector<std::string>{std::string(60, 'a'), std::string(60, 'd')}));
  EXPECT_EQ(log.lines(), 2U);
  EXPECT_EQ(log.lost(), 2U);
  EXPECT_EQ(said.size(), 1U);
}

// A pipe that nobody reads stands in for a disk that takes minutes.
TEST_F(request_log_file, a_slow_disk_holds_up_nobody_and_its_lost_lines_are_counted) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  std::fstream reader(file("pipe"), std::ios::in | std::ios::out);
  std::atomic<int> said = 0;
  std::string const line(60'000, 'x');  // the second no longer fits a pipe's 64 KiB
  constexpr std::size_t limit = 4;
  request_log log({.path = file("pipe"),
                   .on_fault = [&](std::string const&) { ++said; },
                   .queue_limit = limit});
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) log.write(line);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_GE(log.lost(), 100U - limit - 2U);
  EXPECT_LT(log.lost(), 100U);
  std::thread drain([&] {
    std::string got;
    for (std::uint64_t i = 0; i < 100 - log.lost(); ++i) std::getline(reader, got);
  });
  log.flush();
  drain.join();
  EXPECT_EQ(log.lines() + log.lost(), 100U);
  // Said again where lines were lost after the one that the pipe took.
  EXPECT_GE(said, 1);
  EXPECT_LE(said, 2);
}

nlohmann::json record(
    fs::path const& path,
    std::function<void(call_record&, std::chrono::steady_clock::time_point&)> use) {
  auto to = std::make_shared<telemetry>();
  to->log = std::make_shared<request_log>(request_log::options{.path = path});
  auto now = std::chrono::steady_clock::time_point{} + 1000s;
  to->now = [&now] { return now; };
  call_record one(to, endpoint::chat_completions, "0123456789abcdef");
  use(one, now);
  to->log->flush();
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return nlohmann::json::parse(line);
}

TEST_F(request_log_file, an_answered_request_leaves_all_its_numbers) {
  auto const line = record(file(), [](call_record& one, auto& now) {
    engine::request wanted;
    wanted.prompt_ids = {1, 2, 3};
    wanted.max_tokens = 50;
    wanted.sampling.temperature = 0.5F;
    wanted.sampling.top_k = 20;
    wanted.sampling.seed = 0xFFFF'FFFF'FFFF'FFFF;
    now += 5ms;
    one.submitted(wanted, true);
    now += 95ms;
    one.output({.reasoning = "secret", .content = {}, .ids = {7}});
    now += 30ms;
    one.output({.reasoning = {}, .content = "secret", .ids = {8, 9}});
    now += 10ms;
    engine::result outcome;
    outcome.finish = engine::finish_reason::stop;
    outcome.stop_string = "secret";
    outcome.message = "secret";
    outcome.usage = {
        .prompt_tokens = 3, .completion_tokens = 3, .reasoning_tokens = 1, .cached_tokens = 2};
    outcome.speculation = {
        .draft_tokens = 2, .rounds = 1, .drafted = 2, .accepted = 1, .accepted_at = {1, 0}};
    outcome.timing = {.queued = 10, .prefill = 85, .decode = 40};
    one.finished(outcome, 200);
  });
  nlohmann::json const expected = nlohmann::json::parse(R"({
    "id":"0123456789abcdef","endpoint":"chat_completions","status":200,"finish_reason":"stop",
    "prompt_tokens":3,"cached_tokens":2,"completion_tokens":3,"reasoning_tokens":1,
    "ttft_ms":100.0,"latency_ms":140.0,"prepare_ms":5.0,"queued_ms":10.0,"prefill_ms":85.0,
    "decode_ms":40.0,"k":2,"rounds":1,"drafted":2,"accepted":1,"tau":2.0,"accepted_at":[1,0],
    "stream":true,"max_tokens":50,"temperature":0.5,"top_p":1.0,"top_k":20,"min_p":0.0,
    "repetition_penalty":1.0,"frequency_penalty":0.0,"presence_penalty":0.0,
    "seed":18446744073709551615})");
  auto without_time = line;
  without_time.erase("time");
  EXPECT_EQ(without_time, expected) << without_time.dump(1);
  EXPECT_EQ(line.dump().find("secret"), std::string::npos);
  auto const time = line["time"].get<std::string>();
  EXPECT_EQ(time.size(), 24U) << time;
  EXPECT_EQ(time.substr(0, 2), "20");
  EXPECT_EQ(time.back(), 'Z');
}

TEST_F(request_log_file, a_refused_request_leaves_its_status_and_no_word_of_its_own) {
  auto const line = record(file(), [](call_record& one, auto& now) {
    now += 2ms;
    error_reply what;
    what.status = 400;
    what.message = "secret";
    what.param = "secret";
    what.code = "context_length_exceeded";
    one.refused(what);
  });
  EXPECT_EQ(line["status"], 400);
  EXPECT_EQ(line["finish_reason"], "refused");
  EXPECT_EQ(line["error_code"], "context_length_exceeded");
  EXPECT_EQ(line["latency_ms"], 2.0);
  EXPECT_EQ(line.dump().find("secret"), std::string::npos);
}

TEST_F(request_log_file, a_request_that_never_had_a_lane_has_no_first_token) {
  auto const line = record(file(), [](call_record& one, auto& now) {
    one.submitted({}, false);
    now += 30s;
    engine::result outcome;
    outcome.finish = engine::finish_reason::queue_timeout;
    one.finished(outcome, 503);
  });
  EXPECT_EQ(line["status"], 503);
  EXPECT_EQ(line["finish_reason"], "queue_timeout");
  EXPECT_TRUE(line["ttft_ms"].is_null());
  EXPECT_EQ(line["latency_ms"], 30000.0);
}

}  // namespace
}  // namespace qwen38::api

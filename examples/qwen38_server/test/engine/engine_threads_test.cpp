// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

namespace qwen38::engine {
namespace {

/// A recorder that another thread waits for.
class waiter final : public observer {
 public:
  void on_output(output_delta const& delta) override { inner_.on_output(delta); }
  void on_finish(result const& outcome) override {
    std::scoped_lock const lock(mutex_);
    inner_.on_finish(outcome);
    ended_.notify_all();
  }
  answer wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return inner_.ended(); });
    return inner_.get();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  recorder inner_;
};

TEST(engine_threads, an_idle_engine_wakes_for_each_request) {
  test::toy_options const options;
  test::toy_model model(options);
  engine running(model, byte_tokenizer());
  running.start();
  for (std::uint32_t i = 0; i < 50; ++i) {
    auto const sink = std::make_shared<waiter>();
    running.submit(greedy_request(3, 9, 3, i), sink);
    EXPECT_EQ(sink->wait(), straight_answer(options, greedy_request(3, 9, 3, i)));
    EXPECT_EQ(running.get_state().running, 0U);
  }
}

TEST(engine_threads, many_clients_submit_cancel_and_look_at_the_same_time) {
  test::toy_options options;
  options.end_every = 60;
  options.limits.kv_pages = 10;  // not enough for all lanes
  options.limits.snapshots = 3;
  test::toy_model model(options);
  engine running(model, byte_tokenizer(), {.queue_limit = 4});
  running.start();
  std::atomic<int> answered = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> refused = 0;
  auto const client = [&](std::uint32_t name) {
    std::mt19937 engine_random(name);
    auto const random = [&] { return static_cast<std::uint32_t>(engine_random()); };
    for (int i = 0; i < 60; ++i) {
      request wanted = greedy_request(1 + random() % 150, 1 + random() % 50,
                                      static_cast<int>(random() % 16), random() % 3);
      if (random() % 2 == 0) wanted.sampling.temperature = 1;
      wanted.sampling.seed = random();
      wanted.stop_ids = {test::im_end_id};
      auto const sink = std::make_shared<waiter>();
      std::uint64_t ticket = 0;
      try {
        ticket = running.submit(wanted, sink);
      } catch (error const& what) {
        EXPECT_EQ(what.kind(), error_kind::overloaded);
        ++refused;
        continue;
      }
      bool const cancels = random() % 3 == 0;
      if (cancels) {
        for (std::uint32_t spin = random() % 20; spin > 0; --spin)
          static_cast<void>(running.get_state());
        running.cancel(ticket);
      }
      answer const got = sink->wait();
      answer const whole = straight_answer(options, wanted);
      if (got.finish == finish_reason::cancelled) {
        EXPECT_TRUE(cancels);
        ++cancelled;
        ASSERT_LE(got.ids.size(), whole.ids.size());
        EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), whole.ids.begin()));
      } else {
        ++answered;
        EXPECT_EQ(got, whole) << "client " << name << ", request " << i;
      }
    }
  };
  {
    std::vector<std::jthread> clients;
    for (std::uint32_t name = 0; name < 8; ++name) clients.emplace_back(client, name);
  }
  EXPECT_EQ(answered + cancelled + refused, 8 * 60);
  EXPECT_GT(answered, 0);
  EXPECT_TRUE(running.wait_idle(std::chrono::seconds(60)));
  expect_idle(running);
}

}  // namespace
}  // namespace qwen38::engine

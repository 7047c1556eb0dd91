// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "support/error.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/engine/toy_model.hpp"

namespace qwen38::engine {
namespace {

struct sent {
  request wanted;
  std::shared_ptr<recorder> sink;
  std::uint64_t ticket = 0;
};

// Everything at once against a small pool: lengths, depths, sampling, stops, prompts that meet and
// part, cancellations and deadlines. An answer that came to its end is the one by definition; one
// cut short is a beginning of it; nothing is lost.
void soak(std::uint32_t seed, std::int32_t lanes, std::int32_t snapshots, int requests) {
  std::string const what = "seed " + std::to_string(seed) + ", lanes " + std::to_string(lanes) +
                           ", snapshots " + std::to_string(snapshots);
  std::mt19937 generator(seed);
  auto const random = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(generator()) % below;
  };
  test::toy_options options;
  options.limits.max_lanes = lanes;
  options.limits.max_rows = random(2) == 0 ? 96 : 33;
  options.limits.kv_pages = 8 + static_cast<std::int32_t>(random(10));
  options.limits.snapshots = snapshots;
  options.end_every = 50;
  options.agrees = [](std::int64_t position, int depth) {
    return test::toy_model::mix(static_cast<std::uint64_t>(position * 16 + depth)) % 10 < 7;
  };
  auto const ms = std::make_shared<std::atomic<std::int64_t>>(0);
  engine_options limits;
  limits.queue_limit = 12;
  limits.queue_timeout = std::chrono::milliseconds(1600 / lanes);
  limits.request_timeout = std::chrono::milliseconds(3200 / lanes);
  limits.now = [ms] { return scheduler::time_point(std::chrono::milliseconds(*ms)); };
  test::toy_model model(options);
  engine driven(model, byte_tokenizer(), limits);

  std::vector<sent> all;
  int refused = 0;
  while (std::ssize(all) + refused < requests) {
    for (std::uint32_t burst = random(4); burst > 0; --burst) {
      sent one;
      // Few families of prompts, cut and now and then changed somewhere.
      one.wanted = greedy_request(1 + random(300), 1 + random(60), 0, random(5));
      if (random(3) == 0)
        one.wanted.prompt_ids[random(
            1 + random(static_cast<std::uint32_t>(one.wanted.prompt_ids.size())))] = 7;
      int const depths[] = {0, 1, 3, 7, 15};
      one.wanted.draft_tokens = depths[random(5)];
      one.wanted.sampling.temperature = random(2) == 0 ? 0.0F : 1.0F;
      one.wanted.sampling.seed = random(1000);
      if (random(3) == 0) one.wanted.stop_ids = {test::im_end_id};
      if (random(4) == 0) one.wanted.stop_strings = {"ab", "hgf"};
      one.sink = std::make_shared<recorder>();
      try {
        one.ticket = driven.submit(one.wanted, one.sink);
        all.push_back(one);
      } catch (error const& problem) {
        bool const expected = problem.kind() == error_kind::overloaded ||
                              problem.kind() == error_kind::context_length_exceeded;
        ASSERT_TRUE(expected) << what << ": " << problem.what();
        ++refused;
      }
    }
    for (std::uint32_t steps = random(6); steps > 0; --steps) {
      driven.step();
      *ms += random(4);
    }
    if (!all.empty() && random(3) == 0)
      driven.cancel(all[all.size() - 1 -
                        random(static_cast<std::uint32_t>(std::min<std::size_t>(all.size(), 8)))]
                        .ticket);
  }
  run_to_end(driven);
  expect_idle(driven);
  std::int64_t finished = 0;
  std::int64_t cached = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i].sink->ended()) << what << ", request " << i;
    answer const got = all[i].sink->get();
    answer const whole = straight_answer(options, all[i].wanted);
    ASSERT_NE(got.finish, finish_reason::failed) << what << ", request " << i << got.message;
    cached += all[i].sink->outcome->usage.cached_tokens;
    if (got.finish == finish_reason::stop || got.finish == finish_reason::length) {
      ++finished;
      ASSERT_EQ(got, whole) << what << ", request " << i;
    } else {
      ASSERT_LE(got.ids.size(), whole.ids.size()) << what << ", request " << i;
      ASSERT_TRUE(std::equal(got.ids.begin(), got.ids.end(), whole.ids.begin()))
          << what << ", request " << i;
    }
  }
  EXPECT_GT(finished, std::ssize(all) / 4) << what;
  EXPECT_LT(finished, std::ssize(all)) << what;
  EXPECT_EQ(cached > 0, snapshots > 0) << what;
}

TEST(engine_soak, every_answer_equals_the_one_by_definition_and_nothing_is_lost) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    soak(seed, 8, 6, 300);
    soak(100 + seed, 1 + static_cast<std::int32_t>(seed), 1 + static_cast<std::int32_t>(seed), 300);
  }
  soak(200, 4, 0, 300);
}

}  // namespace
}  // namespace qwen38::engine

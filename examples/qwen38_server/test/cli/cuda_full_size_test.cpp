// SPDX-License-Identifier: Apache-2.0
// The full-size model with made-up weights on one GPU and on as many as there are: the same ids at
// every depth and in company, and those of one GPU but for near ties.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/collector.hpp"
#include "cli/load.hpp"
#include "test/cli/answers.hpp"

namespace qwen38::test {
namespace {

constexpr int lanes = 4;
constexpr float near_tie = 0.05F;             ///< of logits
constexpr std::size_t gigabytes_needed = 40;  ///< of each GPU, with room for both models at once

/// GPUs from the first one on that have so much room.
int count_free_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  for (int i = 0; i < count; ++i) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaSetDevice(i) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess ||
        free < gigabytes_needed * 1000000000) {
      return i;
    }
  }
  return count;
}

cli::loaded_model load_full_size(int ranks) {
  cli::model_flags flags;
  flags.model = "synth:27b";
  flags.device = "cuda";
  flags.tp = ranks;
  flags.lanes = lanes;
  flags.context = 1024;
  flags.allow_busy_gpu = true;  // the other model
  return cli::load(flags);
}

std::vector<engine::request> make_requests(cli::loaded_model const& loaded, int k) {
  std::vector<engine::request> requests;
  for (std::string const& prompt :
       {std::string("One."), std::string(70, 'b'), std::string(333, 'q'),
        std::string("A prompt of some words, to be answered by a model that knows none.")}) {
    text::message const message{text::chat_role::user, prompt, {}, {}};
    requests.push_back(
        chat_request(loaded, {&message, 1}, text::default_chat_options(loaded.chat_format)));
    requests.back().sampling.temperature = 0;
    requests.back().max_tokens = 40;
    requests.back().stop_ids.clear();
    requests.back().draft_tokens = k;
  }
  return requests;
}

/// The answers, once it is certain that no depth and no company changes them.
answers expect_one_answer(cli::loaded_model const& loaded) {
  auto const engine = cli::start_engine(loaded);
  answers wanted;
  for (std::size_t together : {std::size_t{1}, std::size_t{lanes}}) {
    for (int k : {0, 3, 7, 15}) {
      answers const got = answer(*engine, make_requests(loaded, k), together);
      if (wanted.empty()) wanted = got;
      EXPECT_EQ(got, wanted) << "k " << k << ", " << together << " lanes, " << loaded.ranks.size()
                             << " ranks";
    }
  }
  return wanted;
}

TEST(cuda_full_size, ids_are_the_same_at_every_depth_and_in_company) {
  int const gpus = count_free_gpus();
  if (gpus == 0) GTEST_SKIP() << "no GPU has " << gigabytes_needed << " GB free";
  cli::loaded_model const whole = load_full_size(1);
  answers const wanted = expect_one_answer(whole);
  for (int ranks = 2; ranks <= std::min(gpus, 4); ranks *= 2) {
    cli::loaded_model const split = load_full_size(ranks);
    agreement const all = expect_near_ties(whole, make_requests(whole, 0), expect_one_answer(split),
                                           wanted, near_tie);
    std::printf("%d ranks: %zu of %zu answers are those of one GPU; the widest near tie is %g\n",
                ranks, all.same, wanted.size(), static_cast<double>(all.widest));
  }
}

}  // namespace
}  // namespace qwen38::test

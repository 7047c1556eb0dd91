// SPDX-License-Identifier: Apache-2.0
// The trained demo checkpoint on a GPU, against transformers and against the CPU's texts.

#include <gtest/gtest.h>

#include "engine/engine.hpp"
#include "test/engine/engine_fixture.hpp"
#include "test/ops/cuda/gpu_model.hpp"

namespace qwen38::test {
namespace {

constexpr char const* demo = "../../demo_model";
constexpr std::int32_t valid_ids = 4077;
constexpr std::size_t vocab_size = 4096;

class cuda_demo : public ::testing::Test {
 protected:
  golden const wanted{"../model/golden/demo"};
};

TEST_F(cuda_demo, logits_and_greedy_ids_agree_with_the_oracle) {
  auto const lm = open_on_gpu(demo, {.valid_ids = valid_ids, .max_context = 1024});
  for (golden::prompt const& prompt : wanted.prompts()) {
    lm->begin(0, lane_pages(*lm, 0));
    std::vector<float> logits;
    auto const feed = [&](std::span<std::int32_t const> ids, std::size_t first,
                          std::size_t rows_wanted) {
      for (std::size_t at = 0; at < ids.size();) {
        std::size_t const count = std::min<std::size_t>(64, ids.size() - at);
        std::size_t const from = at + count == ids.size() ? count - rows_wanted : count;
        model::sequence_rows const rows{0, static_cast<std::int64_t>(first + at),
                                        ids.subspan(at, count), false,
                                        static_cast<std::int64_t>(from)};
        auto const part = lm->forward({&rows, 1});
        logits.assign(part.begin(), part.end());
        at += count;
      }
    };
    feed(prompt.ids, 0, 4);
    double const error = worst_row(logits, wanted.array(prompt.name + ".logits.last4"), vocab_size);
    EXPECT_LT(error, gpu_tolerance) << prompt.name;
    RecordProperty(prompt.name + "_logits", std::to_string(error));
    auto const generated = prompt.fields.at("generated").get<std::vector<std::int32_t>>();
    for (std::size_t i = 0; i < generated.size(); ++i) {
      auto const last = std::span(logits).last(vocab_size).first(valid_ids);
      ASSERT_EQ(std::ranges::max_element(last) - last.begin(), generated[i])
          << prompt.name << " token " << i;
      feed(std::span(generated).subspan(i, 1), prompt.ids.size() + i, 1);
    }
  }
}

TEST_F(cuda_demo, texts_are_the_same_at_every_depth_and_with_company) {
  text::tokenizer const tokenizer = text::tokenizer::from_checkpoint(demo);
  std::vector<engine::answer> solo;
  for (int k : {0, 3, 7}) {
    for (bool alone : {true, false}) {
      auto const lm = open_on_gpu(demo, {.valid_ids = valid_ids, .lanes = 4, .max_context = 512});
      engine::engine driven(*lm, tokenizer);
      std::vector<std::shared_ptr<engine::recorder>> sinks;
      std::int64_t accepted = 0;
      for (golden::prompt const& prompt : wanted.prompts()) {
        engine::request request;
        request.prompt_ids = prompt.ids;
        request.sampling.temperature = 0;
        request.max_tokens = 60;
        request.draft_tokens = k;
        sinks.push_back(std::make_shared<engine::recorder>());
        driven.submit(request, sinks.back());
        if (alone) engine::run_to_end(driven);
      }
      engine::run_to_end(driven);
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        if (solo.size() <= i) solo.push_back(sinks[i]->get());
        EXPECT_EQ(sinks[i]->get(), solo[i]) << "k " << k << ", alone " << alone << ", " << i;
        accepted += sinks[i]->outcome->speculation.accepted;
      }
      EXPECT_EQ(accepted > 0, k > 0);
    }
  }
}

}  // namespace
}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
// A long prompt through every kind of layer on a GPU, against transformers.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "test/ops/cuda/gpu_model.hpp"

namespace qwen38::test {
namespace {

TEST(cuda_long_prompt, every_layer_and_the_logits_agree_with_the_oracle) {
  golden const wanted("../model/golden/tiny_long");
  golden::prompt const& prompt = wanted.prompts().at(0);
  auto const rows = prompt.fields.at("rows").get<std::vector<std::size_t>>();
  auto const length = static_cast<std::int64_t>(prompt.ids.size());
  auto const lm = open_on_gpu("../model/golden/tiny",
                              {.valid_ids = tiny_valid_ids, .lanes = 1, .max_context = length});
  std::map<std::int64_t, std::vector<float>> layers;
  lm->set_tap([&](std::int64_t layer, std::span<float const> part) {
    layers[layer].insert(layers[layer].end(), part.begin(), part.end());
  });
  std::vector<std::size_t> cuts;
  for (std::size_t at = 64; at < prompt.ids.size(); at += 64) cuts.push_back(at);
  auto const logits = all_logits(*lm, 0, prompt.ids, cuts);
  lm->set_tap({});
  auto const check = [&](std::vector<float> const& got, std::string const& name,
                         std::size_t width) {
    std::vector<float> picked;
    for (std::size_t row : rows) {
      auto const one = std::span(got).subspan(row * width, width);
      picked.insert(picked.end(), one.begin(), one.end());
    }
    double const error = worst_row(picked, wanted.array("long." + name), width);
    EXPECT_LT(error, gpu_tolerance) << name;
    RecordProperty(name, std::to_string(error));
  };
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    check(layers[layer], "hidden." + std::to_string(layer), 64);
  }
  check(layers[4], "final", 64);
  check(logits, "logits", 512);
}

}  // namespace
}  // namespace qwen38::test

// SPDX-License-Identifier: Apache-2.0
// A long prompt through every kind of layer on a GPU, against transformers.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "test/ops/cuda/gpu_model.hpp"

namespace qwen38::test {
namespace {

/// By passes of 64 rows, and by wide ones.
class cuda_long_prompt : public testing::TestWithParam<std::int32_t> {};

TEST_P(cuda_long_prompt, every_layer_and_the_logits_agree_with_the_oracle) {
  golden const wanted("../model/golden/tiny_long");
  golden::prompt const& prompt = wanted.prompts().at(0);
  auto const rows = prompt.fields.at("rows").get<std::vector<std::size_t>>();
  auto const length = static_cast<std::int64_t>(prompt.ids.size());
  auto const lm = open_on_gpu(
      "../model/golden/tiny",
      {.valid_ids = tiny_valid_ids, .lanes = 1, .max_context = length, .prefill_pass = GetParam()});
  std::map<std::int64_t, std::vector<float>> layers;
  lm->set_tap([&](std::int64_t layer, std::span<float const> part) {
    layers[layer].insert(layers[layer].end(), part.begin(), part.end());
  });
  // Of a wide pass the logits of the last rows alone.
  auto const pass = static_cast<std::size_t>(GetParam());
  std::vector<float> logits(prompt.ids.size() * 512);
  std::vector<bool> has_logits(prompt.ids.size());
  lm->begin(0, lane_pages(*lm, 0));
  for (std::size_t first = 0; first < prompt.ids.size(); first += pass) {
    std::size_t const count = std::min(pass, prompt.ids.size() - first);
    std::size_t const from = count - std::min<std::size_t>(count, 96);
    model::sequence_rows const part{0, static_cast<std::int64_t>(first),
                                    std::span(prompt.ids).subspan(first, count), false,
                                    static_cast<std::int64_t>(from)};
    std::ranges::copy(lm->forward({&part, 1}),
                      logits.begin() + static_cast<std::ptrdiff_t>((first + from) * 512));
    for (std::size_t row = first + from; row < first + count; ++row) has_logits[row] = true;
  }
  lm->set_tap({});
  auto const check = [&](std::vector<float> const& got, std::string const& name,
                         std::size_t width) {
    auto const& of_oracle = wanted.array("long." + name);
    std::vector<float> picked;
    std::vector<float> expected;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (name == "logits" && !has_logits[rows[i]]) continue;
      auto const one = std::span(got).subspan(rows[i] * width, width);
      auto const other = std::span(of_oracle).subspan(i * width, width);
      picked.insert(picked.end(), one.begin(), one.end());
      expected.insert(expected.end(), other.begin(), other.end());
    }
    ASSERT_GE(picked.size(), 3 * width) << name;
    double const error = worst_row(picked, expected, width);
    EXPECT_LT(error, gpu_tolerance) << name;
    RecordProperty(name, std::to_string(error));
  };
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    check(layers[layer], "hidden." + std::to_string(layer), 64);
  }
  check(layers[4], "final", 64);
  check(logits, "logits", 512);
}

INSTANTIATE_TEST_SUITE_P(passes, cuda_long_prompt, testing::Values(64, 128, 512, 1024));

}  // namespace
}  // namespace qwen38::test

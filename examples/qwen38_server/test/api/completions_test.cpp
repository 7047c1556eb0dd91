// SPDX-License-Identifier: Apache-2.0
#include "api/completions.hpp"

#include <gtest/gtest.h>

#include <string>

#include "test/api/api_fixture.hpp"

namespace qwen38::api {
namespace {

completion_request parse(std::string const& body) {
  return parse_completion_request(parse_json(body, "The request body"), served_settings(),
                                  served_limits());
}

TEST(completion_request, prompt_is_text_ids_or_one_of_them_in_an_array) {
  EXPECT_EQ(std::get<std::string>(parse(R"({"prompt":"hi"})").prompt), "hi");
  EXPECT_EQ(std::get<std::string>(parse(R"({"prompt":["hi"]})").prompt), "hi");
  std::vector<std::int32_t> const ids = {104, 260};
  EXPECT_EQ(std::get<1>(parse(R"({"prompt":[104,260]})").prompt), ids);
  EXPECT_EQ(std::get<1>(parse(R"({"prompt":[[104,260]]})").prompt), ids);
}

TEST(completion_request, reasoning_is_not_split) {
  auto const request = parse(R"({"prompt":"hi","max_tokens":7,"stop":"x"})").generation.request;
  EXPECT_FALSE(request.split_reasoning);
  EXPECT_FALSE(request.starts_in_reasoning);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.stop_strings, std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace qwen38::api

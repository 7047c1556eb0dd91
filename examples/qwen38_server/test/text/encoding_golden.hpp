// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "json_file.hpp"

namespace qwen38::text::testing {

/// golden_path: what make_hf_encodings.mjs wrote for the tokenizer at tokenizer_path.
inline void expect_hf_encodings(std::string const& tokenizer_path, std::string const& golden_path) {
  tokenizer const source = tokenizer::from_file(tokenizer_path);
  auto const cases = read_json(golden_path);
  ASSERT_GE(cases.size(), 10U) << golden_path;
  for (auto const& one : cases) {
    auto const text = one.at("text").get<std::string>();
    EXPECT_EQ(source.encode(text), one.at("ids").get<std::vector<std::int32_t>>())
        << one.at("text").dump();
  }
}

}  // namespace qwen38::text::testing

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "random_texts.hpp"
#include "support.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace qwen38::text {
namespace {

void feed(std::string const& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(input.data()), input.size());
}

void mutate(testing::random_source& random, std::string& input) {
  std::size_t const at = random.below(input.size());
  switch (random.below(4)) {
    case 0: input[at] = static_cast<char>(random.below(256)); break;
    case 1: input.erase(at, 1 + random.below(16)); break;
    case 2: input.insert(at, random.pick(testing::interesting_texts())); break;
    default: input.insert(at, input.substr(random.below(input.size()), random.below(16))); break;
  }
  if (input.empty()) input = "x";
}

TEST(fuzz_tokenizer, survives_texts_ids_and_conversations) {
  for (std::uint32_t seed = 1; seed <= 8000; ++seed) {
    SCOPED_TRACE(seed);
    testing::random_source random(seed);
    std::string input(1, static_cast<char>(1 + random.below(3)));
    input += random.below(2) == 0 ? testing::random_text(random, 20)
                                  : R"({"a": [1, "</think>"], "b": {"c": 1e5}})";
    for (std::size_t count = random.below(6); count > 0; --count) mutate(random, input);
    feed(input);
  }
}

TEST(fuzz_tokenizer, survives_broken_files) {
  std::string const file = std::string(1, '\0') + testing::read_file(testing::tiny_path);
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    testing::random_source random(seed);
    std::string input = file;
    for (std::size_t count = 1 + random.below(4); count > 0; --count) mutate(random, input);
    input[0] = '\0';
    feed(input);
    feed(file.substr(0, random.below(file.size())));
  }
}

}  // namespace
}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "encoding_golden.hpp"

namespace qwen38::text {
namespace {

TEST(demo_tokenizer, gives_the_ids_of_hugging_face_tokenizers) {
  testing::expect_hf_encodings("../../demo_model/tokenizer.json", "golden/hf_encodings.json");
}

TEST(demo_tokenizer, is_the_same_with_the_checkpoints_configuration) {
  auto const alone = tokenizer::from_file("../../demo_model/tokenizer.json");
  auto const both = tokenizer::from_checkpoint("../../demo_model");
  ASSERT_EQ(both.vocab_size(), alone.vocab_size());
  for (std::int32_t id = 0; id < alone.vocab_size(); ++id) {
    EXPECT_EQ(both.token_bytes(id), alone.token_bytes(id));
    EXPECT_EQ(both.is_special(id), alone.is_special(id));
  }
  EXPECT_EQ(testing::error_message([] { (void)tokenizer::from_checkpoint("fixtures"); }),
            "fixtures/tokenizer.json: no such file; a tokenizer.json was expected");
}

}  // namespace
}  // namespace qwen38::text

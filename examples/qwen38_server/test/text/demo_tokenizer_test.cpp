// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "encoding_golden.hpp"

namespace qwen38::text {
namespace {

TEST(demo_tokenizer, gives_the_ids_of_hugging_face_tokenizers) {
  testing::expect_hf_encodings("../../demo_model/tokenizer.json", "golden/hf_encodings.json");
}

}  // namespace
}  // namespace qwen38::text

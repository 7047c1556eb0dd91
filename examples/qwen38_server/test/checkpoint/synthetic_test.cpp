// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/synthetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/inspect.hpp"
#include "checkpoint_fixture.hpp"
#include "support/error.hpp"
#include "text/byte_vocabulary.hpp"

namespace qwen38::checkpoint {
namespace {

TEST(synthetic_checkpoint, has_the_published_names_types_and_shapes_of_27b) {
  synthetic_checkpoint const made("27b", open_mode::headers_only);
  test::checkpoint_fixture const published = test::make_27b();
  std::map<std::string, tensor_view const*> by_name;
  for (tensor_view const& tensor : made.tensors()) {
    EXPECT_TRUE(by_name.emplace(tensor.name, &tensor).second) << tensor.name << " stands twice";
  }
  std::size_t text_tensors = 0;
  for (auto const& [name, tensor] : published.tensors) {
    if (name.starts_with("model.visual.") || name.ends_with("k_scale") ||
        name.ends_with("v_scale")) {
      continue;
    }
    ++text_tensors;
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(by_name[name]->dtype, tensor.dtype) << name;
    EXPECT_EQ(by_name[name]->shape, tensor.shape) << name;
  }
  EXPECT_EQ(made.tensors().size(), text_tensors);
  EXPECT_GT(text_tensors, 1700U);
}

TEST(synthetic_checkpoint, written_is_what_it_is_in_memory_and_passes_inspection) {
  synthetic_checkpoint const made("tiny");
  test::temp_directory const parent;
  auto const directory = parent.path() / "made";
  std::uint64_t told = 0;
  made.write(directory, text::byte_tokenizer_json(), 200'000,
             [&](std::uint64_t done, std::uint64_t total) {
               EXPECT_GT(done, told);
               EXPECT_EQ(total, made.byte_count());
               told = done;
             });
  EXPECT_EQ(told, made.byte_count());
  inspection const seen = inspect_checkpoint(directory);
  for (problem const& one : seen.problems) ADD_FAILURE() << one.sentence;
  EXPECT_TRUE(seen.ok());
  EXPECT_GT(seen.files, 2U);
  EXPECT_EQ(seen.bytes, made.byte_count());
  repository const read(directory);
  for (tensor_view const& tensor : made.tensors()) {
    tensor_view const* const stored = read.find(tensor.name);
    ASSERT_NE(stored, nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(stored->bytes, tensor.bytes)) << tensor.name;
  }
}

TEST(synthetic_checkpoint, is_the_same_for_everyone_and_differs_from_tensor_to_tensor) {
  synthetic_checkpoint const one("tiny");
  synthetic_checkpoint const other("tiny");
  ASSERT_EQ(one.tensors().size(), other.tensors().size());
  for (std::size_t i = 0; i < one.tensors().size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(one.tensors()[i].bytes, other.tensors()[i].bytes)) << i;
  }
  repository const tensors("unused", one.tensors());
  auto const* const a = tensors.find("model.language_model.layers.0.mlp.up_proj.weight");
  auto const* const b = tensors.find("model.language_model.layers.1.mlp.up_proj.weight");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_FALSE(std::ranges::equal(a->bytes, b->bytes));
}

TEST(synthetic_checkpoint, refuses_other_presets_and_directories_that_are_there) {
  try {
    synthetic_checkpoint const made("28b");
    ADD_FAILURE() << "28b was made";
  } catch (error const& refused) {
    EXPECT_EQ(refused.kind(), error_kind::invalid_argument);
    EXPECT_STREQ(refused.what(),
                 "there is no synthetic model \"28b\": expected 27b, small or tiny");
  }
  test::temp_directory const there;
  synthetic_checkpoint const made("tiny");
  EXPECT_THROW(made.write(there.path(), text::byte_tokenizer_json(), 1 << 30, {}), error);
}

}  // namespace
}  // namespace qwen38::checkpoint

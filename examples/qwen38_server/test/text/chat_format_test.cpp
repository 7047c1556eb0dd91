// SPDX-License-Identifier: Apache-2.0
#include "text/chat_format.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support.hpp"
#include "text/sha256.hpp"

namespace qwen38::text {
namespace {

using testing::error_message;

constexpr char const* other_sha256 =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // of "abc"
constexpr char const* refusal =
    "abc.jinja: the chat template is not one that is known: found SHA-256 "
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, expected "
    "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041 (qwen3.8) or "
    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259 (qwen3.6)";

class checkpoint_directory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "qwen38_chat_format_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr) << pattern;
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(std::string const& name, std::string const& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }

  std::filesystem::path directory_;
};

TEST(sha256, gives_the_vectors_of_fips_180) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), other_sha256);
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_hex(std::string(64, '\0')),
            "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

TEST(chat_format, has_names) {
  for (chat_format const format : {chat_format::qwen38, chat_format::qwen36})
    EXPECT_EQ(parse_chat_format(chat_format_name(format)), format);
  EXPECT_EQ(parse_chat_format("qwen3"), std::nullopt);
}

TEST(chat_format, refuses_another_template_with_both_hashes_unless_told_what_to_assume) {
  chat_template_source const other{"abc", "abc.jinja"};
  EXPECT_EQ(identify_chat_template(other.text), std::nullopt);
  EXPECT_EQ(error_message([&] { (void)checked_chat_format(other); }), refusal);
  EXPECT_EQ(checked_chat_format(other, chat_format::qwen36), chat_format::qwen36);
}

TEST_F(checkpoint_directory, has_its_template_in_one_of_two_files) {
  EXPECT_FALSE(read_chat_template(directory_).has_value());
  EXPECT_EQ(checkpoint_chat_format(directory_), chat_format::qwen38);
  EXPECT_EQ(checkpoint_chat_format(directory_, chat_format::qwen36), chat_format::qwen36);

  write("tokenizer_config.json", R"({"model_max_length": 5})");
  EXPECT_FALSE(read_chat_template(directory_).has_value());
  write("tokenizer_config.json", R"({"chat_template": "from the configuration"})");
  EXPECT_EQ(read_chat_template(directory_)->text, "from the configuration");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(read_chat_template(directory_)->text, "d");

  write("chat_template.jinja", "abc");
  EXPECT_EQ(read_chat_template(directory_)->text, "abc");
  EXPECT_NE(error_message([&] {
              (void)checkpoint_chat_format(directory_);
            }).find("chat_template.jinja: the chat template is not one that is known"),
            std::string::npos);
}

TEST_F(checkpoint_directory, says_what_is_wrong_with_its_configuration) {
  std::string const name = (directory_ / "tokenizer_config.json").string();
  for (char const* text : {"", "{", "[]", "1"}) {
    write("tokenizer_config.json", text);
    EXPECT_EQ(error_message([&] { (void)read_chat_template(directory_); }),
              name + ": must hold a JSON object")
        << text;
  }
  for (char const* value : {"1", "[]", "{}", R"([{"name":"default"}])", R"([1,{"name":1}])"}) {
    write("tokenizer_config.json", std::string(R"({"chat_template":)") + value + "}");
    EXPECT_EQ(error_message([&] { (void)read_chat_template(directory_); }),
              name + ": chat_template must be a string, or a list with an entry called \"default\"")
        << value;
  }
}

}  // namespace
}  // namespace qwen38::text

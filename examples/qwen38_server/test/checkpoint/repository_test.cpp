// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/repository.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::error_of;
using test::temp_directory;
using test::write_file;

// A shard with the U8 [1] tensors named.
std::string shard(std::vector<std::string> const& names) {
  json header = json::object();
  for (std::size_t i = 0; i < names.size(); ++i) {
    header[names[i]] = {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {i, i + 1}}};
  }
  return test::safetensors_image(header.dump(), names.size());
}

class repository_sharded : public testing::Test {
 protected:
  void write(std::string const& file, std::string_view text) const {
    write_file(dir_ / file, text);
  }
  void write_index(json const& weight_map) const {
    write("model.safetensors.index.json", json{{"weight_map", weight_map}}.dump());
  }
  // Two good shards: a and b in s1, c in s2.
  void write_good() const {
    write("s1.safetensors", shard({"a", "b"}));
    write("s2.safetensors", shard({"c"}));
    write_index({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}});
  }
  [[nodiscard]] std::string error() const {
    return error_of([&] { (void)repository(dir_.path()); });
  }
  [[nodiscard]] std::string at(std::string const& file, std::string const& what) const {
    return (dir_ / file).string() + ": " + what;
  }
  temp_directory const dir_;
};
constexpr char const* index_file = "model.safetensors.index.json";

TEST_F(repository_sharded, opens_shards_and_finds_by_name) {
  write_good();
  repository tensors(dir_.path());
  EXPECT_EQ(tensors.shard_count(), 2u);
  ASSERT_NE(tensors.find("c"), nullptr);
  EXPECT_EQ(tensors.find("c")->bytes.size(), 1u);
  EXPECT_EQ(tensors.find("d"), nullptr);
  EXPECT_EQ(tensors.tensors().size(), 3u);
}

TEST_F(repository_sharded, opens_a_single_file) {
  write("model.safetensors", shard({"a", "b"}));
  repository tensors(dir_.path());
  EXPECT_EQ(tensors.shard_count(), 1u);
  EXPECT_NE(tensors.find("b"), nullptr);
}

TEST_F(repository_sharded, follows_symbolic_links_of_a_download_cache) {
  write_good();
  temp_directory const cache;
  std::filesystem::rename(dir_ / "s2.safetensors", cache / "blob");
  std::filesystem::create_symlink(cache / "blob", dir_ / "s2.safetensors");
  EXPECT_EQ(error(), "");
}

TEST_F(repository_sharded, refuses_a_directory_without_a_model) {
  EXPECT_EQ(error(), dir_.path().string() +
                         ": holds neither model.safetensors nor model.safetensors.index.json");
  EXPECT_EQ(error_of([&] { (void)repository(dir_ / "none"); }), at("none", "no such directory"));
}

TEST_F(repository_sharded, refuses_a_directory_with_two_models) {
  write_good();
  write("model.safetensors", shard({"a"}));
  EXPECT_EQ(error(), dir_.path().string() +
                         ": holds both model.safetensors and model.safetensors.index.json, so it "
                         "is unclear which one is the model");
}

TEST_F(repository_sharded, refuses_a_missing_shard) {
  write_good();
  std::filesystem::remove(dir_ / "s2.safetensors");
  EXPECT_EQ(error(), at("s2.safetensors", "this shard is missing, but the index names it"));
}

TEST_F(repository_sharded, refuses_a_tensor_in_the_wrong_shard) {
  write_good();
  write_index({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s2.safetensors"}});
  EXPECT_EQ(error(), at("s1.safetensors",
                        "tensor \"b\" is here, but the index places it in \"s2.safetensors\""));
}

TEST_F(repository_sharded, refuses_a_tensor_that_stands_twice) {
  write_good();
  write("s2.safetensors", shard({"c", "a"}));
  EXPECT_EQ(error(), at("s2.safetensors", "tensor \"a\" stands in s1.safetensors too"));
}

TEST_F(repository_sharded, refuses_a_tensor_that_the_index_does_not_list) {
  write_good();
  write("s2.safetensors", shard({"c", "d"}));
  EXPECT_EQ(error(), at("s2.safetensors", "tensor \"d\" is not listed in the index"));
}

TEST_F(repository_sharded, refuses_an_index_that_names_absent_tensors) {
  write_good();
  json map = {{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}};
  for (char const* const name : {"x1", "x2", "x3", "x4", "x5"}) map[name] = "s2.safetensors";
  write_index(map);
  EXPECT_EQ(error(), at("s2.safetensors",
                        "the index names 5 tensors that this shard does not hold: \"x1\", \"x2\", "
                        "\"x3\" and 2 more"));
}

TEST_F(repository_sharded, refuses_shard_names_that_lead_out_of_the_directory) {
  write_good();
  for (char const* const name :
       {"../s1.safetensors", "/etc/s1.safetensors", "sub/s1.safetensors", "..\\s1.safetensors",
        ".safetensors", "..safetensors", "", "s1.bin", "/dev/zero"}) {
    write_index({{"a", name}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}});
    EXPECT_EQ(
        error(),
        at(index_file, "the shard name " + json(name).dump() +
                           " is not the plain name of a .safetensors file in the same directory"));
  }
  write_index({{"a", std::string("s1\0.safetensors", 15)}});
  EXPECT_NE(error().find("the shard name \"s1\\u0000.safetensors\" is not the plain name"),
            std::string::npos);
}

TEST_F(repository_sharded, refuses_a_malformed_index) {
  write_good();
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "{\"a\":";
  std::vector<std::pair<std::string, std::string>> const cases = {
      {"", "not valid JSON at byte 1"},
      {"{", "not valid JSON at byte 2"},
      {"[]", "the JSON is array, not an object"},
      {std::string("{}\0x", 4), "not valid JSON at byte 3"},
      {"{}", "weight_map is missing or not an object of tensor name to file name"},
      {R"({"weight_map":["a"]})",
       "weight_map is missing or not an object of tensor name to file name"},
      {R"({"weight_map":{"a":1}})", "weight_map.\"a\" is not a file name"},
      {R"({"weight_map":{"a":"s1.safetensors","a":"s2.safetensors"}})",
       "the key \"a\" stands twice in one object"},
      {deep, "the JSON nests deeper than 32 levels"},
      {R"({"weight_map":{},"x":1e999})", "not valid JSON"},
  };
  for (auto const& [text, sentence] : cases) {
    write(index_file, text);
    EXPECT_EQ(error(), at(index_file, sentence)) << text;
  }
}

TEST_F(repository_sharded, names_the_file_of_a_shard_that_is_cut_off) {
  write_good();
  std::filesystem::resize_file(dir_ / "s1.safetensors",
                               std::filesystem::file_size(dir_ / "s1.safetensors") - 1);
  EXPECT_EQ(error(), at("s1.safetensors",
                        "tensor \"b\": data_offsets [1, 2] end past the file's data section of 1 "
                        "bytes (is the file cut off?)"));
}

TEST_F(repository_sharded, collects_every_problem_and_keeps_what_is_readable) {
  write_good();
  write("s3.safetensors", "broken");
  write("stray.safetensors", shard({"q"}));
  write(index_file, json{{"metadata", {{"total_size", 7}}},
                         {"weight_map",
                          {{"a", "s1.safetensors"},
                           {"b", "s2.safetensors"},
                           {"c", "s2.safetensors"},
                           {"d", "s3.safetensors"},
                           {"e", "s4.safetensors"}}}}
                        .dump());
  diagnostics report(diagnostics::mode::collecting);
  repository const tensors(dir_.path(), open_mode::full, report);
  std::vector<std::string> sentences;
  for (problem const& p : report.problems()) sentences.push_back(p.sentence);
  EXPECT_EQ(
      sentences,
      (std::vector<std::string>{
          at("s1.safetensors",
             "tensor \"b\" is here, but the index places it in \"s2.safetensors\""),
          at("s3.safetensors", "the file has 6 bytes, too few for a safetensors header length"),
          at("s4.safetensors", "this shard is missing, but the index names it"),
          dir_.path().string() + ": 1 .safetensors files are not named by the index and not read: "
                                 "\"stray.safetensors\"",
          at(index_file, "metadata.total_size is 7, but the tensors have 3 bytes")}));
  EXPECT_EQ(report.error_count(), 3u);
  EXPECT_EQ(tensors.tensors().size(), 3u);
}

TEST_F(repository_sharded, accounts_for_every_tensor) {
  write("model.safetensors",
        shard({"used", "p", "q", "r", "s", "model.visual.blocks.0.attn.qkv.weight", "x.weight",
               "x.input_scale", "x.k_scale", "x.v_scale"}));
  repository tensors(dir_.path());
  tensors.claim("x.weight");
  EXPECT_EQ(tensors.claim("used").name, "used");
  EXPECT_EQ(tensors.claim("used").name, "used");
  EXPECT_EQ(tensors.unused(), (std::vector<std::string>{"p", "q", "r", "s"}));
  EXPECT_EQ(error_of([&] { tensors.require_all_used(); }),
            dir_.path().string() +
                ": 4 tensors of the checkpoint are not used by this model: \"p\", \"q\", \"r\" and "
                "1 more");
  EXPECT_EQ(error_of([&] { tensors.claim("none"); }),
            dir_.path().string() + ": tensor \"none\" is missing from the checkpoint");
  for (char const* const name : {"p", "q", "r", "s"}) tensors.claim(name);
  EXPECT_EQ(error_of([&] { tensors.require_all_used(); }), "");
}

TEST_F(repository_sharded, ignores_a_scale_only_beside_its_module) {
  write("model.safetensors", shard({"x.weight", "xy.input_scale", "x.y.k_scale", "a.v_scale"}));
  repository tensors(dir_.path());
  tensors.claim("x.weight");
  EXPECT_EQ(tensors.unused(),
            (std::vector<std::string>{"a.v_scale", "x.y.k_scale", "xy.input_scale"}));
  tensors.forget_claims();
  EXPECT_EQ(tensors.unused().size(), 4u);
}

TEST_F(repository_sharded, ignores_no_name_that_only_looks_like_an_ignored_one) {
  write("model.safetensors",
        shard({"visual.a", "model.visualx", "x.input_scale.weight", "input_scale", "k_scale"}));
  EXPECT_EQ(repository(dir_.path()).unused().size(), 5u);
}

TEST_F(repository_sharded, stays_valid_when_it_is_moved) {
  write_good();
  repository first(dir_.path());
  tensor_view const* const before = first.find("b");
  std::byte const* const bytes = before->bytes.data();
  repository const second = std::move(first);
  EXPECT_EQ(second.find("b"), before);
  EXPECT_EQ(second.find("b")->bytes.data(), bytes);
}

TEST_F(repository_sharded, tells_the_prefix_of_the_text_model) {
  write("model.safetensors", shard({"model.language_model.embed_tokens.weight"}));
  EXPECT_EQ(text_prefix(repository(dir_.path())), "model.language_model.");
  write("model.safetensors", shard({"model.embed_tokens.weight"}));
  EXPECT_EQ(text_prefix(repository(dir_.path())), "model.");
}

}  // namespace
}  // namespace qwen38::checkpoint

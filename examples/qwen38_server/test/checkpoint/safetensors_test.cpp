// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "checkpoint/safetensors_writer.hpp"
#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using test::error_of;
using test::safetensors_image;
using test::temp_directory;

std::span<std::byte const> as_bytes(std::string const& text) {
  return std::as_bytes(std::span(text));
}

safetensors_contents parse(std::string const& image, open_mode mode = open_mode::full) {
  return parse_safetensors(as_bytes(image), "t", mode);
}

// {"a": {...}} with the fields given.
std::string one(std::string const& fields) {
  return "{\"a\":{" + fields + "}}";
}
std::string entry(std::string const& shape, std::string const& offsets) {
  return R"("dtype":"BF16","shape":)" + shape + R"(,"data_offsets":)" + offsets;
}

struct malformed {
  std::string name;
  std::string image;
  std::string sentence;
};

std::string image(std::string const& header, std::size_t data_bytes = 0) {
  return safetensors_image(header, data_bytes);
}

std::vector<malformed> malformed_files() {
  std::string const huge_length = std::string("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 100,000,001
  std::string const u8 = R"({"dtype":"U8","shape":[4],"data_offsets":)";
  std::string const deep(200'000, '[');
  std::string const long_name(1000, 'x');
  return {
      {"empty_file", "", "t: the file has 0 bytes, too few for a safetensors header length"},
      {"seven_bytes", std::string(7, '\0'),
       "t: the file has 7 bytes, too few for a safetensors header length"},
      {"header_over_100_mb", huge_length + "{}",
       "t: the header length of 100000001 bytes is over the format's limit of 100 MB (is this a "
       "safetensors file?)"},
      {"header_length_all_ones", std::string(8, '\xff'),
       "t: the header length of 18446744073709551615 bytes is over the format's limit of 100 MB "
       "(is this a safetensors file?)"},
      {"header_past_the_end", image("{}").substr(0, 9),
       "t: the header length of 2 bytes goes past the end of the file"},
      {"empty_header", image(""), "t: the header does not begin with '{'"},
      {"leading_blank", image(" {}"), "t: the header does not begin with '{'"},
      {"byte_order_mark", image("\xef\xbb\xbf{}"), "t: the header does not begin with '{'"},
      {"array_on_top", image("[]"), "t: the header does not begin with '{'"},
      {"cut_off_json", image("{\"a\":"), "t: the header is not valid JSON at its byte 6"},
      {"second_document", image("{}{}"), "t: the header is not valid JSON at its byte 3"},
      {"zero_padding", image(std::string("{}\0\0", 4)),
       "t: the header is not valid JSON at its byte 3"},
      {"broken_utf8", image("{\"\xff\":1}"), "t: the header is not valid JSON at its byte 3"},
      {"number_out_of_range", image(one(entry("[1e999]", "[0,2]"))),
       "t: the header is not valid JSON at its byte 35"},
      {"name_twice", image("{\"a\":" + u8 + "[0,4]},\"a\":" + u8 + "[4,8]}}", 8),
       "t: the header has the name \"a\" twice"},
      {"empty_name", image("{\"\":" + u8 + "[0,4]}}", 4),
       "t: the header has a tensor with an empty name"},
      {"entry_is_a_number", image("{\"a\":7}"),
       "t: tensor \"a\": its entry is the number 7 where an object was expected"},
      {"entry_is_null", image("{\"a\":null}"),
       "t: tensor \"a\": its entry is null where an object was expected"},
      {"entry_is_an_array", image("{\"a\":[1]}"),
       "t: tensor \"a\": its entry is an array where an object was expected"},
      {"deep_nesting", image("{\"a\":" + deep),
       "t: tensor \"a\": its entry is an array where an object was expected"},
      {"deep_shape", image(one("\"shape\":" + deep)),
       "t: tensor \"a\": shape has an array where a whole number was expected"},
      {"unknown_dtype", image(one(R"("dtype":"Q4_K")")), "t: tensor \"a\": unknown dtype \"Q4_K\""},
      {"lower_case_dtype", image(one(R"("dtype":"bf16")")),
       "t: tensor \"a\": unknown dtype \"bf16\""},
      {"dtype_is_a_number", image(one("\"dtype\":3")),
       "t: tensor \"a\": dtype is the number 3 where a string was expected"},
      {"unknown_field", image(one("\"strides\":[1]")),
       "t: tensor \"a\": unknown field \"strides\""},
      {"field_twice", image(one(R"("dtype":"U8","dtype":"I8")")),
       "t: tensor \"a\": its entry has the field dtype twice"},
      {"dtype_missing", image(one(R"("shape":[],"data_offsets":[0,0])")),
       "t: tensor \"a\": dtype is missing"},
      {"shape_missing", image(one(R"("dtype":"U8","data_offsets":[0,0])")),
       "t: tensor \"a\": shape is missing"},
      {"offsets_missing", image(one(R"("dtype":"U8","shape":[])")),
       "t: tensor \"a\": data_offsets is missing"},
      {"shape_is_a_number", image(one("\"shape\":4")),
       "t: tensor \"a\": shape has the number 4 where a whole number was expected"},
      {"negative_extent", image(one(entry("[-1]", "[0,2]"))),
       "t: tensor \"a\": shape has a negative number where a whole number was expected"},
      {"fractional_extent", image(one(entry("[1.5]", "[0,2]"))),
       "t: tensor \"a\": shape has the number 1.5 where a whole number was expected"},
      {"true_extent", image(one(entry("[true]", "[0,2]"))),
       "t: tensor \"a\": shape has a boolean where a whole number was expected"},
      {"extent_over_int64", image(one(entry("[9223372036854775808]", "[0,2]"))),
       "t: tensor \"a\": shape has the extent 9223372036854775808, which overflows"},
      {"extent_over_uint64", image(one(entry("[18446744073709551616]", "[0,2]"))),
       "t: tensor \"a\": shape has the number 18446744073709551616 where a whole number was "
       "expected"},
      {"size_overflows", image(one(entry("[4294967296,4294967296]", "[0,0]"))),
       "t: tensor \"a\": the size of BF16 [4294967296, 4294967296] overflows"},
      {"one_offset", image(one(entry("[1]", "[0]")), 2),
       "t: tensor \"a\": data_offsets has fewer than two numbers"},
      {"three_offsets", image(one(entry("[1]", "[0,2,2]")), 2),
       "t: tensor \"a\": data_offsets has more than two numbers"},
      {"offsets_backwards", image(one(entry("[1]", "[2,0]")), 2),
       "t: tensor \"a\": data_offsets [2, 0] run backwards"},
      {"offsets_past_the_end", image(one(entry("[3]", "[0,6]")), 5),
       "t: tensor \"a\": data_offsets [0, 6] end past the file's data section of 5 bytes (is the "
       "file cut off?)"},
      {"offsets_near_two_to_the_64",
       image(one(entry("[1]", "[18446744073709551613,18446744073709551615]")), 2),
       "t: tensor \"a\": data_offsets [18446744073709551613, 18446744073709551615] end past the "
       "file's data section of 2 bytes (is the file cut off?)"},
      {"too_few_bytes", image(one(entry("[3]", "[0,4]")), 4),
       "t: tensor \"a\": data_offsets [0, 4] hold 4 bytes, but BF16 [3] needs 6"},
      {"too_many_bytes", image(one(entry("[]", "[0,4]")), 4),
       "t: tensor \"a\": data_offsets [0, 4] hold 4 bytes, but BF16 [] needs 2"},
      {"overlap", image("{\"a\":" + u8 + "[0,4]},\"b\":" + u8 + "[3,7]}}", 7),
       "t: tensors \"a\" and \"b\" overlap"},
      {"same_bytes_twice", image("{\"a\":" + u8 + "[0,4]},\"b\":" + u8 + "[0,4]}}", 4),
       "t: tensors \"a\" and \"b\" overlap"},
      {"hole_between", image("{\"a\":" + u8 + "[0,4]},\"b\":" + u8 + "[5,9]}}", 9),
       "t: 1 bytes before tensor \"b\" belong to no tensor"},
      {"hole_at_the_start", image("{\"a\":" + u8 + "[8,12]}}", 12),
       "t: 8 bytes before tensor \"a\" belong to no tensor"},
      {"bytes_at_the_end", image("{\"a\":" + u8 + "[0,4]}}", 6),
       "t: 2 bytes after the last tensor belong to no tensor"},
      {"bytes_without_tensors", image("{}", 3),
       "t: 3 bytes after the last tensor belong to no tensor"},
      {"metadata_is_a_list", image(R"({"__metadata__":[]})"),
       "t: __metadata__ has an array where text was expected"},
      {"metadata_holds_a_number", image(R"({"__metadata__":{"a":1}})"),
       "t: __metadata__ has the number 1 where text was expected"},
      {"metadata_nests", image(R"({"__metadata__":{"a":{}}})"),
       "t: __metadata__ has an object where text was expected"},
      {"metadata_key_twice", image(R"({"__metadata__":{"a":"1","a":"2"}})"),
       "t: __metadata__ has the key \"a\" twice"},
      {"metadata_twice", image(R"({"__metadata__":{},"__metadata__":{}})"),
       "t: the header has the name \"__metadata__\" twice"},
      {"control_characters_are_escaped", image("{\"\\u001b[31m\":1}"),
       "t: tensor \"\\u001b[31m\": its entry is the number 1 where an object was expected"},
      {"long_names_are_cut", image("{\"" + long_name + "\":1}"),
       "t: tensor \"" + std::string(160, 'x') +
           "...\": its entry is the number 1 where an object was expected"},
  };
}

TEST(safetensors_reader, refuses_each_malformed_file_with_its_sentence) {
  for (malformed const& c : malformed_files()) {
    EXPECT_EQ(error_of([&] { (void)parse(c.image); }), c.sentence) << c.name;
  }
}

TEST(safetensors_reader, reads_the_smallest_files) {
  EXPECT_TRUE(parse(image("{}")).tensors.empty());
  EXPECT_TRUE(parse(image("{}      ")).tensors.empty());
  safetensors_contents const scalar = parse(image(one(entry("[]", "[0,2]")), 2));
  ASSERT_EQ(scalar.tensors.size(), 1u);
  EXPECT_TRUE(scalar.tensors[0].shape.empty());
  EXPECT_EQ(scalar.tensors[0].element_count(), 1u);
  EXPECT_EQ(scalar.tensors[0].bytes.size(), 2u);
  EXPECT_EQ(parse(image(R"({"__metadata__":{"format":"pt"}})")).metadata.at("format"), "pt");
}

TEST(safetensors_reader, takes_empty_tensors_anywhere_and_sorts_by_place) {
  std::string const header =
      R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"e":{"dtype":"F32","shape":[3,0],"data_offsets":[1,1]},)"
      R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})";
  safetensors_contents const contents = parse(image(header, 3));
  ASSERT_EQ(contents.tensors.size(), 3u);
  EXPECT_EQ(contents.tensors[0].name, "a");
  EXPECT_EQ(contents.tensors[1].name, "e");
  EXPECT_EQ(contents.tensors[1].byte_count, 0u);
  EXPECT_EQ(contents.tensors[2].name, "z");
  EXPECT_EQ(contents.data_bytes, 3u);
}

TEST(safetensors_reader, opens_headers_without_data_only_when_asked) {
  std::string const header_only = image(one(entry("[3]", "[0,6]")));
  EXPECT_NE(error_of([&] { (void)parse(header_only); }), "");
  safetensors_contents const contents = parse(header_only, open_mode::headers_only);
  ASSERT_EQ(contents.tensors.size(), 1u);
  EXPECT_EQ(contents.tensors[0].byte_count, 6u);
  EXPECT_TRUE(contents.tensors[0].bytes.empty());
  std::string const hole = image(one(entry("[3]", "[2,8]")));
  EXPECT_EQ(error_of([&] { (void)parse(hole, open_mode::headers_only); }),
            "t: 2 bytes before tensor \"a\" belong to no tensor");
}

TEST(safetensors_reader, knows_every_dtype_by_its_published_name_and_size) {
  std::map<std::string, int> const published = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8}};
  for (auto const& [name, bytes] : published) {
    std::string const header = R"({"a":{"dtype":")" + name + R"(","shape":[3],"data_offsets":[0,)" +
                               std::to_string(3 * bytes) + "]}}";
    safetensors_contents const contents = parse(image(header, static_cast<std::size_t>(3 * bytes)));
    EXPECT_EQ(dtype_name(contents.tensors.at(0).dtype), name);
    EXPECT_EQ(contents.tensors.at(0).element_count(), 3u) << name;
  }
}

TEST(safetensors_reader, names_the_path_of_a_file_it_cannot_open) {
  temp_directory const dir;
  EXPECT_EQ(
      error_of([&] { safetensors_file file(dir / "none.safetensors"); }),
      (dir / "none.safetensors").string() + ": cannot open the file: No such file or directory");
  EXPECT_EQ(error_of([&] { safetensors_file file(dir.path()); }),
            dir.path().string() + ": not a regular file");
}

std::string read_file(std::filesystem::path const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(safetensors_writer, writes_exactly_these_bytes) {
  temp_directory const dir;
  safetensors_writer writer(
      dir / "w", {{"b", storage_dtype::u8, {3}}, {"a", storage_dtype::bf16, {1, 2}}}, {{"k", "v"}});
  writer.append("b", as_bytes("xyz"));
  writer.append("a", as_bytes("AB"));
  writer.append("a", as_bytes("CD"));
  EXPECT_FALSE(std::filesystem::exists(dir / "w"));
  writer.finish();
  // The wider element type comes first; blanks pad the header of 128 bytes to a multiple of 8.
  std::string const header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  std::string const padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_file(dir / "w"), safetensors_image(header + padding, 0) + "ABCDxyz");
  EXPECT_FALSE(std::filesystem::exists(dir / "w.part"));
}

// Random tensors of all types, written in random pieces and in random order.
TEST(safetensors_writer, round_trips_through_the_reader) {
  temp_directory const dir;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    auto const below = [&](unsigned n) {
      return std::uniform_int_distribution<unsigned>(0, n - 1)(random);
    };
    std::vector<tensor_info> infos;
    std::map<std::string, std::string> expected;
    for (unsigned i = 0; i < below(30); ++i) {
      tensor_info info{"t" + std::to_string(i), static_cast<storage_dtype>(below(16)), {}};
      std::size_t bytes = static_cast<std::size_t>(dtype_bytes(info.dtype));
      for (unsigned rank = below(4); rank > 0; --rank) {
        info.shape.push_back(below(8));
        bytes *= static_cast<std::size_t>(info.shape.back());
      }
      std::string content(bytes, '\0');
      for (char& c : content) c = static_cast<char>(below(256));
      expected[info.name] = content;
      infos.push_back(std::move(info));
    }
    safetensors_writer writer(dir / "r", infos);
    std::map<std::string, std::size_t> done;
    for (auto open = expected; !open.empty();) {
      auto const next = std::next(open.begin(), below(static_cast<unsigned>(open.size())));
      std::size_t& offset = done[next->first];
      std::size_t const piece = std::min<std::size_t>(next->second.size() - offset, below(40));
      writer.append(next->first, as_bytes(next->second).subspan(offset, piece));
      offset += piece;
      if (offset == next->second.size()) open.erase(next);
    }
    writer.finish();
    safetensors_file const file(dir / "r");
    ASSERT_EQ(file.tensors().size(), infos.size());
    for (tensor_view const& tensor : file.tensors()) {
      std::string const& content = expected.at(tensor.name);
      ASSERT_EQ(tensor.bytes.size(), content.size()) << tensor.name;
      EXPECT_TRUE(content.empty() ||
                  std::memcmp(tensor.bytes.data(), content.data(), content.size()) == 0);
      EXPECT_TRUE(content.empty() ||
                  reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) %
                          static_cast<std::uintptr_t>(dtype_bytes(tensor.dtype)) ==
                      0)
          << tensor.name << " is not aligned";
    }
  }
}

TEST(safetensors_writer, refuses_misuse_and_leaves_no_file) {
  temp_directory const dir;
  std::string const path = (dir / "w").string();
  EXPECT_EQ(
      error_of([&] {
        safetensors_writer w(path, {{"a", storage_dtype::u8, {}}, {"a", storage_dtype::u8, {}}});
      }),
      path + ": the tensor name \"a\" is empty, reserved or used twice");
  EXPECT_EQ(error_of([&] {
              safetensors_writer w(path, {{"__metadata__", storage_dtype::u8, {}}});
            }),
            path + ": the tensor name \"__metadata__\" is empty, reserved or used twice");
  EXPECT_EQ(error_of([&] {
              safetensors_writer w(path, {{"a", storage_dtype::u8, {-1}}});
            }),
            "tensor \"a\": the size of U8 [-1] is negative or overflows");
  {
    safetensors_writer writer(path, {{"a", storage_dtype::u8, {3}}});
    EXPECT_EQ(error_of([&] { writer.append("b", {}); }), path + ": tensor \"b\" was not declared");
    EXPECT_EQ(error_of([&] { writer.append("a", as_bytes("1234")); }),
              path + ": tensor \"a\" takes 3 bytes, but 4 were given");
    writer.append("a", as_bytes("12"));
    EXPECT_EQ(error_of([&] { writer.finish(); }), path + ": tensor \"a\" got 2 of its 3 bytes");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  std::string const nowhere = (dir / "no/such/w").string();
  EXPECT_EQ(error_of([&] { safetensors_writer w(nowhere, {}); }),
            nowhere + ".part: cannot create the file: No such file or directory");
}

}  // namespace
}  // namespace qwen38::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <qpn/quantize.hpp>
#include <set>
#include <sstream>

#include "checkpoint/inspect.hpp"
#include "checkpoint_fixture.hpp"
#include "golden.hpp"
#include "text/sha256.hpp"
#include "tiny_model.hpp"

namespace {

// Live bytes of this program's heap, and the most since reset.
std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void* counted_or_null(std::size_t size) noexcept {
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) return nullptr;
  std::int64_t const now = live += static_cast<std::int64_t>(::malloc_usable_size(block));
  std::int64_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return block;
}

void* counted(std::size_t size) {
  void* const block = counted_or_null(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void uncounted(void* block) noexcept {
  if (block == nullptr) return;
  live -= static_cast<std::int64_t>(::malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
// All forms that the library calls, since a sanitizer brings those that are not replaced.
void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  return counted_or_null(size);
}
void* operator new[](std::size_t size, std::nothrow_t const&) noexcept {
  return counted_or_null(size);
}
void operator delete(void* block, std::nothrow_t const&) noexcept {
  uncounted(block);
}
void operator delete[](void* block, std::nothrow_t const&) noexcept {
  uncounted(block);
}
void operator delete(void* block) noexcept {
  uncounted(block);
}
void operator delete[](void* block) noexcept {
  uncounted(block);
}
void operator delete(void* block, std::size_t) noexcept {
  uncounted(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  uncounted(block);
}

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::checkpoint_fixture;
using test::error_of;
using test::temp_directory;
namespace fs = std::filesystem;

constexpr char const* tiny = "../model/golden/tiny";
// Logits of transformers on what convert_tiny's conversion holds.
constexpr char const* transformers = "../model/golden/converted";
constexpr double logit_tolerance = 1e-2;  // absolute; the largest logit is 25

// Runs a Python script of this directory on paths; 0 is success.
int run_script(std::string const& script, std::vector<fs::path> const& arguments) {
  std::string command = std::string("\"") + QPN_PYTHON + "\" -B " + script;
  for (fs::path const& argument : arguments) command += " \"" + argument.string() + "\"";
  return std::system(command.c_str());
}

std::vector<std::string> sentences(fs::path const& directory) {
  std::vector<std::string> all;
  for (problem const& p : inspect_checkpoint(directory).problems) all.push_back(p.sentence);
  return all;
}

std::set<std::string> names_in(fs::path const& directory) {
  std::set<std::string> names;
  for (auto const& file : fs::directory_iterator(directory)) {
    names.insert(file.path().filename().string());
  }
  return names;
}

class convert_tiny : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<temp_directory>();
    ASSERT_EQ(run_script("bf16_source.py", {tiny, *dir_ / "bf16"}), 0);
    test::write_file(*dir_ / "bf16/chat_template.jinja", "{{ messages }}");
    test::write_file(*dir_ / "bf16/pytorch_model.bin", "not ours");
    convert_options options;
    options.shard_bytes = 600'000;
    options.on_progress = [](convert_progress const& now) {
      EXPECT_GE(now.done, done_);
      EXPECT_LE(now.done, now.total);
      done_ = now.done;
    };
    result_ = convert_checkpoint(*dir_ / "bf16", *dir_ / "out", options);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static inline std::unique_ptr<temp_directory> dir_;
  static inline conversion result_;
  static inline std::uint64_t done_ = 0;
};

TEST_F(convert_tiny, gives_a_checkpoint_that_inspect_accepts) {
  EXPECT_EQ(sentences(*dir_ / "out"), std::vector<std::string>{});
  inspection const result = inspect_checkpoint(*dir_ / "out");
  ASSERT_TRUE(result.weights.has_value());
  EXPECT_EQ(result.weights->of(quant_class::nvfp4).count, 4u * 3 + 1);
  EXPECT_EQ(result.weights->of(quant_class::fp8_tensor).count, 3u * 3 + 4);
  EXPECT_EQ(result.weights->of(quant_class::bf16).count, 3u * 2 + 8);
  EXPECT_EQ(result.tensors, result_.tensors);
  EXPECT_EQ(result.bytes, result_.output_bytes);
  EXPECT_EQ(done_, result_.input_bytes);
}

TEST_F(convert_tiny, keeps_every_file_below_the_limit_and_copies_documents) {
  std::set<std::string> names = names_in(*dir_ / "out");
  EXPECT_GE(result_.shards, 3u);
  for (std::string const& name : names) {
    if (name.ends_with(".safetensors")) {
      EXPECT_LE(fs::file_size(*dir_ / ("out/" + name)), 600'000u);
    }
  }
  EXPECT_EQ(std::erase_if(names, [](auto const& name) { return name.ends_with(".safetensors"); }),
            result_.shards);
  EXPECT_EQ(names,
            (std::set<std::string>{"chat_template.jinja", "config.json", "generation_config.json",
                                   "hf_quant_config.json", "model.safetensors.index.json"}));
}

TEST_F(convert_tiny, has_the_values_of_an_independent_quantiser_and_dequantiser) {
  std::string const values_path = (*dir_ / "values").string();
  ASSERT_EQ(run_script("convert_check.py", {*dir_ / "bf16", *dir_ / "out", values_path}), 0);
  std::ifstream rows_file(values_path + ".json");
  json const rows = json::parse(rows_file);
  std::ifstream raw(values_path + ".bin", std::ios::binary);
  std::string const bytes((std::istreambuf_iterator<char>(raw)), {});
  ASSERT_EQ(rows.size(), result_.errors.size());
  std::map<std::string, conversion_error> reported;
  for (conversion_error const& one : result_.errors) reported[one.module] = one;

  repository tensors(*dir_ / "out");
  std::map<std::string, model_entry> entries;
  for (model_entry const& entry :
       list_model(load_model_config(*dir_ / "out"), text_prefix(tensors)))
    entries.emplace(entry.name, entry);
  std::size_t offset = 0;
  for (json const& row : rows) {
    auto const module = row.at("module").get<std::string>();
    auto const& shape = entries.at(module).shape;
    linear_view const linear = find_linear(tensors, module, shape[0], shape[1]);
    EXPECT_EQ(to_string(linear.cls), row.at("class").get<std::string>());
    std::vector<float> const ours = test::held_values(linear);
    ASSERT_EQ(ours.size(), row.at("count").get<std::size_t>());
    ASSERT_LE(offset + 4 * ours.size(), bytes.size());
    EXPECT_EQ(std::memcmp(ours.data(), bytes.data() + offset, 4 * ours.size()), 0) << module;
    offset += 4 * ours.size();
    auto const expected = row.at("relative_rms").get<double>();
    EXPECT_NEAR(reported.at(module).relative_rms, expected, 1e-6 + 1e-4 * expected) << module;
  }
  EXPECT_EQ(offset, bytes.size());
}

double relative_error(std::span<float const> got, std::span<float const> wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
    size += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(difference / size);
}

// The source's values lie on a quantised grid but for their rounding to BF16, so converting them
// moves the logits by little more than that rounding. What transformers computes on the original
// is as near.
TEST_F(convert_tiny, gives_the_logits_of_its_source) {
  auto const source = qwen38::test::open_model(*dir_ / "bf16", qwen38::test::tiny_valid_ids);
  auto const converted = qwen38::test::open_model(*dir_ / "out", qwen38::test::tiny_valid_ids);
  qwen38::test::golden const wanted(tiny);
  for (auto const& prompt : wanted.prompts()) {
    auto const before = qwen38::test::all_logits(*source, 0, prompt.ids);
    auto const after = qwen38::test::all_logits(*converted, 0, prompt.ids);
    double const to_source = relative_error(after, before);
    double const to_golden = relative_error(after, wanted.array(prompt.name + ".logits"));
    RecordProperty(prompt.name + "_to_source", std::to_string(to_source));
    RecordProperty(prompt.name + "_to_golden", std::to_string(to_golden));
    EXPECT_LT(to_source, 1e-2) << prompt.name;
    EXPECT_LT(to_golden, 1e-2) << prompt.name;
  }
}

std::map<std::string, std::string> shard_hashes(fs::path const& directory) {
  std::map<std::string, std::string> hashes;
  for (std::string const& name : names_in(directory)) {
    if (!name.ends_with(".safetensors")) continue;
    std::ifstream file(directory / name, std::ios::binary);
    std::string const bytes((std::istreambuf_iterator<char>(file)), {});
    hashes[name] = text::sha256_hex(bytes);
  }
  return hashes;
}

// Infinite where a value is NaN or missing.
double largest_difference(std::span<float const> got, std::span<float const> wanted) {
  if (got.size() != wanted.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    double const difference = std::fabs(static_cast<double>(got[i]) - wanted[i]);
    largest = std::isnan(difference) ? INFINITY : (std::max)(largest, difference);
    if (largest == INFINITY) break;
  }
  return largest;
}

std::vector<float> tiny_logits(fs::path const& directory, std::vector<std::int32_t> const& ids) {
  auto const lm = qwen38::test::open_model(directory, qwen38::test::tiny_valid_ids);
  return qwen38::test::all_logits(*lm, 0, ids);
}

// The shards are those that make_goldens.py dequantised and fed to transformers, so both models see
// one conversion.
TEST_F(convert_tiny, gives_the_logits_that_transformers_computes_on_it) {
  qwen38::test::golden const wanted(transformers);
  EXPECT_EQ(shard_hashes(*dir_ / "out"), wanted.manifest().at("shards"));
  ASSERT_EQ(wanted.prompts().size(), 2u);
  for (auto const& prompt : wanted.prompts()) {
    double const difference = largest_difference(tiny_logits(*dir_ / "out", prompt.ids),
                                                 wanted.array(prompt.name + ".logits"));
    std::printf("%s: largest difference of a logit %.3g\n", prompt.name.c_str(), difference);
    EXPECT_LE(difference, logit_tolerance) << prompt.name;
  }
}

// What the tolerance is worth: one global or tensor scale that is off by 2 % exceeds it, whichever
// it is but that of k_proj, which the norm of the keys divides out again.
TEST_F(convert_tiny, shows_in_the_logits_a_scale_that_is_off) {
  qwen38::test::golden const wanted(transformers);
  auto const& prompt = wanted.prompts().at(1);
  checkpoint_fixture const converted = test::read_checkpoint(*dir_ / "out");
  fs::create_directory(*dir_ / "off");
  std::size_t scales = 0;
  for (auto const& [name, tensor] : converted.tensors) {
    if (tensor.dtype != storage_dtype::f32 ||
        !(name.ends_with("_scale") || name.ends_with("_scale_2")))
      continue;
    checkpoint_fixture f = converted;
    float scale = 0;
    std::memcpy(&scale, tensor.bytes.data(), sizeof scale);
    scale *= 1.02F;
    std::memcpy(f.tensors[name].bytes.data(), &scale, sizeof scale);
    f.write(*dir_ / "off");
    double const difference = largest_difference(tiny_logits(*dir_ / "off", prompt.ids),
                                                 wanted.array(prompt.name + ".logits"));
    EXPECT_EQ(difference > logit_tolerance, !name.ends_with("k_proj.weight_scale"))
        << name << " " << difference;
    ++scales;
  }
  EXPECT_EQ(scales, 4u * 3 + 1 + 3u * 3 + 4);
}

TEST_F(convert_tiny, prints_each_linear_and_each_class) {
  std::ostringstream out;
  print_conversion(out, result_);
  for (char const* const part : {"nvfp4       lm_head\n", "nvfp4: 13 linears, relative rms mean ",
                                 "fp8_tensor: 13 linears, relative rms mean ", " shards\n"}) {
    EXPECT_NE(out.str().find(part), std::string::npos) << part << "\n" << out.str();
  }
}

// Resident bytes, of the heap and of mapped files.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

TEST(convert, holds_no_more_memory_than_it_says_whatever_the_size_of_the_model) {
  checkpoint_fixture f = test::make_small_dense();
  constexpr std::int64_t vocab = 800'000;  // 98 MiB each of embedding and head
  f.config["text_config"]["vocab_size"] = vocab;
  f.tensors["lm_head.weight"].shape[0] = vocab;
  f.tensors["model.language_model.embed_tokens.weight"].shape[0] = vocab;
  temp_directory const dir;
  fs::create_directory(dir / "in");
  f.write(dir / "in");
  std::int64_t const heap_before = peak = live.load();
  std::int64_t const resident_before = resident_bytes();
  std::int64_t resident_peak = 0;
  convert_options options;
  options.on_progress = [&](convert_progress const&) {
    resident_peak = std::max(resident_peak, resident_bytes());
  };
  conversion const result = convert_checkpoint(dir / "in", dir / "out", options);
  EXPECT_GT(result.input_bytes, 6 * convert_memory_bytes);
  auto const bound = static_cast<std::int64_t>(convert_memory_bytes);
  std::int64_t const heap = peak - heap_before;
  std::int64_t const resident = resident_peak - resident_before;
  RecordProperty("heap_bytes", std::to_string(heap));
  RecordProperty("resident_bytes", std::to_string(resident));
  EXPECT_LT(heap, bound);
  EXPECT_LT(resident, bound);
  // Zeros lose nothing, and nothing is divided by zero.
  for (conversion_error const& one : result.errors) EXPECT_EQ(one.relative_rms, 0) << one.module;
  EXPECT_EQ(sentences(dir / "out"), std::vector<std::string>{});
}

TEST(convert, cuts_no_value_where_pieces_meet) {
  // 5.4 MB of fp32 rows: more than one piece, with the largest weight in the last.
  checkpoint_fixture f = test::make_small_dense();
  constexpr std::int64_t vocab = 21'001;
  f.config["text_config"]["vocab_size"] = vocab;
  f.tensors["model.language_model.embed_tokens.weight"].shape[0] = vocab;
  f.tensors["lm_head.weight"].shape[0] = vocab;
  std::vector<std::uint16_t> codes;
  std::uint32_t seed = 7;
  std::vector<float> wanted;
  for (std::int64_t i = 0; i < vocab * 64; ++i) {
    seed = seed * 1664525U + 1013904223U;
    float const value = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
    codes.push_back(qpn::encode_bf16(i == vocab * 64 - 5 ? 3.0f : value));
    wanted.push_back(qpn::decode_bf16(codes.back()));
  }
  auto const bytes = std::as_bytes(std::span(codes));
  f.tensors["lm_head.weight"].bytes.assign(bytes.begin(), bytes.end());
  temp_directory const dir;
  fs::create_directory(dir / "in");
  f.write(dir / "in");
  conversion const result = convert_checkpoint(dir / "in", dir / "out");

  std::vector<std::uint8_t> whole(vocab * 32);
  std::vector<std::uint8_t> scales(vocab * 4);
  float scale = 0;
  ASSERT_TRUE(
      qpn::quantize_nvfp4(wanted.data(), vocab, 64, whole.data(), scales.data(), scale).ok());
  repository tensors(dir / "out");
  linear_view const head = find_linear(tensors, "lm_head", vocab, 64);
  EXPECT_EQ(head.scale, scale);
  ASSERT_EQ(head.codes.size(), whole.size());
  EXPECT_EQ(std::memcmp(head.codes.data(), whole.data(), whole.size()), 0);
  EXPECT_EQ(std::memcmp(head.block_scales.data(), scales.data(), scales.size()), 0);
  for (conversion_error const& one : result.errors) {
    if (one.module == "lm_head") {
      EXPECT_GT(one.relative_rms, 0.05);  // what four bits cost uniform noise
      EXPECT_LT(one.relative_rms, 0.12);
    }
  }
}

class convert_refused : public testing::Test {
 protected:
  convert_refused() { fs::create_directory(dir_ / "in"); }

  void write(checkpoint_fixture const& f) { f.write(dir_ / "in"); }
  std::string sentence(convert_options const& options = {}) {
    return error_of([&] { (void)convert_checkpoint(dir_ / "in", dir_ / "out", options); });
  }
  std::string out() const { return (dir_ / "out").string(); }

  temp_directory dir_;
};

TEST_F(convert_refused, leaves_what_exists_unless_told) {
  write(test::make_small_dense());
  EXPECT_EQ(sentence(), "");
  auto const before = fs::last_write_time(dir_ / "out/config.json");
  EXPECT_EQ(sentence(), out() + ": it exists; a name that does not, or --overwrite, is expected");
  EXPECT_EQ(fs::last_write_time(dir_ / "out/config.json"), before);
  test::write_file(dir_ / "out/config.json", "old");
  EXPECT_EQ(sentence({.overwrite = true}), "");
  EXPECT_EQ(sentences(dir_ / "out"), std::vector<std::string>{});
  EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"in", "out"}));
}

TEST_F(convert_refused, replaces_nothing_but_a_checkpoint) {
  write(test::make_small_dense());
  fs::create_directories(dir_ / "out/photos");
  std::string const rest = "; a directory with nothing but a checkpoint's files is expected";
  EXPECT_EQ(sentence({.overwrite = true}),
            out() + ": it is not replaced, since it holds \"photos\"" + rest);
  fs::remove(dir_ / "out/photos");
  test::write_file(dir_ / "out/letter.txt", "dear");
  EXPECT_EQ(sentence({.overwrite = true}),
            out() + ": it is not replaced, since it has no config.json" + rest);
  fs::remove_all(dir_ / "out");
  fs::create_directory_symlink(dir_ / "in", dir_ / "link");
  EXPECT_EQ(
      error_of([&] { (void)convert_checkpoint(dir_ / "in", dir_ / "link", {.overwrite = true}); }),
      (dir_ / "link").string() + ": the output is the input; another directory is expected");
  test::write_file(dir_ / "out", "a file");
  EXPECT_EQ(sentence({.overwrite = true}),
            out() + ": it is not replaced, since it is not a directory" + rest);
}

TEST_F(convert_refused, takes_a_name_with_a_final_slash) {
  write(test::make_small_dense());
  (void)convert_checkpoint(dir_ / "in/", dir_ / "out/");
  EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"in", "out"}));
}

TEST_F(convert_refused, a_quantised_input) {
  write(test::make_small());
  EXPECT_EQ(sentence(), (dir_ / "in").string() +
                            ": linear \"model.language_model.layers.0.linear_attn.in_proj_qkv\" is "
                            "stored as fp8_tensor, but linears in BF16 or F16 are expected");
}

TEST_F(convert_refused, a_limit_below_a_tensor) {
  write(test::make_small_dense());
  EXPECT_EQ(sentence({.shard_bytes = 12'345}),
            "tensor \"model.language_model.embed_tokens.weight\" needs a shard of 12826 bytes, but "
            "the limit is 12345");
  EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"in"}));
}

TEST_F(convert_refused, leaves_nothing_behind_where_a_weight_is_infinite) {
  checkpoint_fixture f = test::make_small_dense();
  std::string const name = "model.language_model.layers.7.mlp.up_proj.weight";
  f.tensors[name].bytes.resize(96 * 64 * 2);
  f.tensors[name].bytes[2 * 70] = std::byte{0x80};
  f.tensors[name].bytes[2 * 70 + 1] = std::byte{0x7f};
  write(f);
  EXPECT_EQ(sentence(), "tensor \"" + name + "\" is NaN or infinite at element 70");
  EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"in"}));
}

TEST_F(convert_refused, keeps_the_old_output_where_the_new_one_fails_at_any_piece) {
  write(test::make_small_dense());
  ASSERT_EQ(sentence(), "");
  std::set<std::string> const files = names_in(dir_ / "out");
  int pieces = 0;
  convert_options options{.shard_bytes = 50'000, .overwrite = true};
  options.on_progress = [&](convert_progress const&) { ++pieces; };
  ASSERT_EQ(sentence(options), "");
  int const all = pieces;
  ASSERT_GT(all, 50);
  ASSERT_EQ(sentence({.overwrite = true}), "");
  for (int stop = 1; stop <= all; stop += 7) {
    pieces = 0;
    options.on_progress = [&](convert_progress const&) {
      if (++pieces == stop) throw error(error_kind::io, "the disk is full");
    };
    EXPECT_EQ(sentence(options), "the disk is full");
    EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"in", "out"})) << stop;
    EXPECT_EQ(names_in(dir_ / "out"), files) << stop;
  }
}

TEST_F(convert_refused, a_place_that_cannot_be_written) {
  write(test::make_small_dense());
  EXPECT_EQ(error_of([&] { (void)convert_checkpoint(dir_ / "in", dir_ / "none/out"); }),
            (dir_ / "none/out").string() +
                ": cannot create a directory beside it: No such file or directory");
}

}  // namespace
}  // namespace qwen38::checkpoint

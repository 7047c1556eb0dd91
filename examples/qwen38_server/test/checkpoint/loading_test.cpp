// SPDX-License-Identifier: Apache-2.0
// The same numbers under each exporter's names give the same model.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "checkpoint/inspect.hpp"
#include "checkpoint_fixture.hpp"
#include "tiny_model.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::checkpoint_fixture;
using test::temp_directory;

constexpr char const* tiny = "../model/golden/tiny";

float scalar(checkpoint_fixture const& f, std::string const& name) {
  float value = 0;
  std::memcpy(&value, f.tensors.at(name).bytes.data(), sizeof value);
  return value;
}

std::vector<std::string> modules_with(checkpoint_fixture const& f, std::string const& suffix) {
  std::vector<std::string> modules;
  for (auto const& [name, tensor] : f.tensors) {
    if (name.ends_with(suffix)) modules.push_back(name.substr(0, name.size() - suffix.size()));
  }
  return modules;
}

// Global scales become powers of two, whose reciprocals are exact.
void round_global_scales(checkpoint_fixture& f) {
  for (std::string const& module : modules_with(f, ".weight_scale_2")) {
    float const scale = scalar(f, module + ".weight_scale_2");
    f.add_f32(module + ".weight_scale_2", std::exp2(std::round(std::log2(scale))));
  }
}

void pack_nvfp4(checkpoint_fixture& f) {
  for (std::string const& module : modules_with(f, ".weight_scale_2")) {
    float const divisor = 1 / scalar(f, module + ".weight_scale_2");
    f.tensors[module + ".weight_packed"] = f.tensors.at(module + ".weight");
    f.shard_of[module + ".weight_packed"] = f.shard_of.at(module + ".weight");
    f.add_filled(module + ".weight_global_scale", storage_dtype::f32, {1}, divisor);
    for (char const* const suffix : {".weight", ".weight_scale_2", ".input_scale"}) {
      f.erase(module + suffix);
    }
  }
}

std::vector<std::string> fp8_modules(checkpoint_fixture const& f) {
  std::vector<std::string> modules = modules_with(f, ".weight_scale");
  std::erase_if(modules, [&](std::string const& module) {
    return f.tensors.at(module + ".weight").dtype != storage_dtype::f8_e4m3;
  });
  return modules;
}

void spread_over_channels(checkpoint_fixture& f, std::function<bool(std::string const&)> which) {
  for (std::string const& module : fp8_modules(f)) {
    if (!which(module)) continue;
    float const scale = scalar(f, module + ".weight_scale");
    std::int64_t const n = f.tensors.at(module + ".weight").shape[0];
    f.add_filled(module + ".weight_scale", storage_dtype::f32, {n, 1}, scale);
  }
}

void spread_over_blocks(checkpoint_fixture& f, std::string const& ending = "") {
  for (std::string const& module : fp8_modules(f)) {
    if (!module.ends_with(ending)) continue;
    float const scale = scalar(f, module + ".weight_scale");
    std::vector<std::int64_t> const shape = f.tensors.at(module + ".weight").shape;
    f.erase(module + ".weight_scale");
    f.add_filled(module + ".weight_scale_inv", storage_dtype::f32,
                 {(shape[0] + 127) / 128, (shape[1] + 127) / 128}, scale);
  }
}

template <class Use>
auto with_model(checkpoint_fixture const& f, Use const& use) {
  temp_directory const dir;
  f.write(dir.path());
  auto files = std::make_shared<repository>(dir.path());
  model::qwen38_model lm(files, load_model_config(dir.path()), ops::cpu::make_backend(2),
                         model::qwen38_options{qwen38::test::tiny_valid_ids, 1, 512});
  return use(lm);
}

std::vector<float> logits_of(checkpoint_fixture const& f) {
  return with_model(f, [](model::qwen38_model& lm) {
    return qwen38::test::all_logits(lm, 0, qwen38::test::some_ids(40, 5));
  });
}

/// Modules of the matrix that starts with `name`.
std::size_t modules_of(checkpoint_fixture const& f, std::string const& name) {
  return with_model(f, [&](model::qwen38_model& lm) {
    auto const found = std::ranges::find(lm.linears(), name, &model::linear_record::name);
    return found == lm.linears().end() ? 0 : found->modules;
  });
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

TEST(loading, a_divisor_gives_the_bits_of_its_multiplier) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  round_global_scales(f);
  std::vector<float> const multiplied = logits_of(f);
  pack_nvfp4(f);
  EXPECT_TRUE(same_bits(logits_of(f), multiplied));
}

TEST(loading, equal_channel_scales_give_the_bits_of_a_tensor_scale) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  std::vector<float> const by_tensor = logits_of(f);
  spread_over_channels(f, [](std::string const&) { return true; });
  EXPECT_TRUE(same_bits(logits_of(f), by_tensor));
}

// qkv with z and k with v are one matrix in memory; one of each pair has channel scales.
TEST(loading, channel_and_tensor_scales_are_fused) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  std::vector<float> const by_tensor = logits_of(f);
  spread_over_channels(f, [](std::string const& module) {
    return module.ends_with("in_proj_z") || module.ends_with("k_proj");
  });
  EXPECT_TRUE(same_bits(logits_of(f), by_tensor));
}

// q, k and v are one matrix, but two where they have scales of different kinds.
TEST(loading, queries_with_scales_of_another_kind_are_a_product_of_their_own) {
  std::string const layer = "model.language_model.layers.3.self_attn.";
  std::string const mtp_layer = "mtp.layers.0.self_attn.";
  checkpoint_fixture f = test::read_checkpoint(tiny);
  std::vector<float> const by_tensor = logits_of(f);
  EXPECT_EQ(modules_of(f, layer + "q_proj"), 3U);
  EXPECT_EQ(modules_of(f, mtp_layer + "q_proj"), 1U) << "which also stores keys and values alone";
  EXPECT_EQ(modules_of(f, mtp_layer + "k_proj"), 2U);
  spread_over_channels(f, [](std::string const& module) { return module.ends_with("q_proj"); });
  EXPECT_TRUE(same_bits(logits_of(f), by_tensor));
  EXPECT_EQ(modules_of(f, layer + "q_proj"), 1U);
  EXPECT_EQ(modules_of(f, layer + "k_proj"), 2U);
}

// Each stretch of 128 k is summed on its own, so equal scales give the numbers of a tensor scale
// but not their bits.
TEST(loading, equal_block_scales_give_the_logits_of_a_tensor_scale) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  std::vector<float> const by_tensor = logits_of(f);
  spread_over_blocks(f);
  std::vector<float> const by_block = logits_of(f);
  ASSERT_EQ(by_block.size(), by_tensor.size());
  float largest = 0;
  for (float const logit : by_tensor) largest = std::max(largest, std::abs(logit));
  for (std::size_t i = 0; i < by_tensor.size(); ++i) {
    ASSERT_NEAR(by_block[i], by_tensor[i], 1e-4F * largest) << "logit " << i;
  }
}

// k and v are one matrix, which keeps v's scale for each tile beside k's blocks, but not scales by
// row.
TEST(loading, block_scales_are_fused_with_a_tensor_scale_but_not_with_channel_scales) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  std::vector<float> const by_tensor = logits_of(f);
  spread_over_blocks(f, "k_proj");
  std::vector<float> const by_block = logits_of(f);
  float largest = 0;
  for (float const logit : by_tensor) largest = std::max(largest, std::abs(logit));
  for (std::size_t i = 0; i < by_tensor.size(); ++i) {
    ASSERT_NEAR(by_block[i], by_tensor[i], 1e-4F * largest) << "logit " << i;
  }
  spread_over_channels(f, [](std::string const& module) { return module.ends_with("v_proj"); });
  EXPECT_EQ(test::error_of([&] { (void)logits_of(f); }),
            "module model.language_model.layers.3.self_attn.k_proj and those read as one matrix "
            "with it have FP8 block scales: multiples of 32 rows and no channel scales are "
            "expected");
}

TEST(loading, every_block_scale_counts) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  spread_over_blocks(f);
  std::vector<float> const before = logits_of(f);
  std::string const name = "model.language_model.layers.0.linear_attn.out_proj.weight_scale_inv";
  auto& grid = f.tensors.at(name);
  std::int64_t const count = grid.shape[0] * grid.shape[1];
  ASSERT_GE(count, 2);
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* const place = grid.bytes.data() + 4 * i;
    float scale = 0;
    std::memcpy(&scale, place, sizeof scale);
    float const doubled = 2 * scale;
    std::memcpy(place, &doubled, sizeof doubled);
    EXPECT_FALSE(same_bits(logits_of(f), before)) << name << ", block " << i;
    std::memcpy(place, &scale, sizeof scale);
  }
}

// The backend's weights, read back one column at a time with inputs of a single one.
std::vector<float> multiplied_values(linear_view const& linear) {
  auto const backend = ops::cpu::make_backend(1);
  qpn::weight_part const part = to_part(linear);
  ops::linear_source source;
  source.name = linear.module;
  source.format = linear.format;
  source.dense_type = linear.dense_type;
  source.scales = linear.scales;
  source.k = linear.k;
  source.parts = {&part, 1};
  auto const matrix = backend->make_linear(source);
  ops::tensor x;
  ops::tensor y;
  auto const x_memory = backend->make_tensor(ops::row_kind::activation, 1, linear.k, x);
  auto const y_memory = backend->make_tensor(ops::row_kind::stream, 1, linear.n, y);
  std::vector<float> values(static_cast<std::size_t>(linear.n * linear.k));
  std::vector<float> column(static_cast<std::size_t>(linear.n));
  for (std::int64_t k = 0; k < linear.k; ++k) {
    static_cast<float*>(x.data)[k] = 1;
    backend->matmul(*matrix, x, y, false);
    static_cast<float*>(x.data)[k] = 0;
    backend->read(y, column);
    for (std::int64_t n = 0; n < linear.n; ++n) {
      values[static_cast<std::size_t>(n * linear.k + k)] = column[static_cast<std::size_t>(n)];
    }
  }
  return values;
}

// serving.md Q6: every code under every positive block scale, the smallest ones and a global scale
// of 1 included, comes out of the product as the number it is; likewise FP8 under channel and block
// scales.
TEST(loading, the_backend_multiplies_with_exactly_the_stored_values) {
  checkpoint_fixture f;
  f.add("four.weight_packed", storage_dtype::u8, {127, 8});
  f.add("four.weight_scale", storage_dtype::f8_e4m3, {127, 1});
  f.add_filled("four.weight_global_scale", storage_dtype::f32, {1}, 1.0f);
  f.add("eight.weight", storage_dtype::f8_e4m3, {64, 256});
  f.add("eight.weight_scale", storage_dtype::bf16, {64, 1});
  auto const put = [&](std::string const& name, std::uint8_t value) {
    f.tensors.at(name).bytes.push_back(static_cast<std::byte>(value));
  };
  for (std::uint8_t scale = 0; scale < 127; ++scale) {
    put("four.weight_scale", scale);
    for (std::uint8_t code = 0; code < 16; code = static_cast<std::uint8_t>(code + 2)) {
      put("four.weight_packed", static_cast<std::uint8_t>(code | (code + 1) << 4));
    }
  }
  for (unsigned row = 0; row < 64; ++row) {
    put("eight.weight_scale", static_cast<std::uint8_t>(3 * row));
    put("eight.weight_scale", static_cast<std::uint8_t>(0x30 + row / 4));
    for (unsigned code = 0; code < 256; ++code) {
      bool const is_nan = (code & 0x7f) == 0x7f;
      put("eight.weight", static_cast<std::uint8_t>(is_nan ? 0x01 : code));
    }
  }
  f.tensors["blocks.weight"] = f.tensors.at("eight.weight");
  f.shard_of["blocks.weight"] = f.shard_of.at("eight.weight");
  f.add("blocks.weight_scale_inv", storage_dtype::f32, {1, 2});
  for (float const scale : {0.3f, 7e-5f}) {
    std::byte bytes[4];
    std::memcpy(bytes, &scale, sizeof scale);
    auto& grid = f.tensors.at("blocks.weight_scale_inv").bytes;
    grid.insert(grid.end(), bytes, bytes + 4);
  }
  temp_directory const dir;
  f.write(dir.path());
  repository tensors(dir.path());
  linear_view const blocks = find_linear(tensors, "blocks", 64, 256);
  EXPECT_EQ(multiplied_values(blocks), test::held_values(blocks));
  linear_view const four = find_linear(tensors, "four", 127, 16);
  linear_view const eight = find_linear(tensors, "eight", 64, 256);
  EXPECT_EQ(multiplied_values(four), test::held_values(four));
  EXPECT_EQ(multiplied_values(eight), test::held_values(eight));
}

TEST(loading, refuses_before_packing_what_its_documents_contradict) {
  checkpoint_fixture f = test::read_checkpoint(tiny);
  f.hf_quant_config = {{"quantization", {{"quant_algo", "FP8"}, {"exclude_modules", {"mtp*"}}}}};
  temp_directory const dir;
  f.write(dir.path());
  std::string const sentence = test::error_of(
      [&] { (void)qwen38::test::open_model(dir.path(), qwen38::test::tiny_valid_ids); });
  EXPECT_TRUE(sentence.starts_with((dir / "hf_quant_config.json").string() +
                                   " declares \"FP8\" for 13 linears that are stored as nvfp4, but "
                                   "both are expected to agree: "))
      << sentence;
}

}  // namespace
}  // namespace qwen38::checkpoint

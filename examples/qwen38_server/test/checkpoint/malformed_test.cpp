// SPDX-License-Identifier: Apache-2.0
// Whole checkpoints with one thing wrong each. `inspect` says it in exactly one sentence and
// nothing else, and loading refuses with the same sentence before it packs anything.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/inspect.hpp"
#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using fixture = test::checkpoint_fixture;
using test::error_of;
using test::temp_directory;

std::vector<std::string> sentences(std::filesystem::path const& directory) {
  std::vector<std::string> all;
  for (problem const& p : inspect_checkpoint(directory).problems) {
    all.push_back((p.level == severity::error ? "error: " : "warning: ") + p.sentence);
  }
  return all;
}

// What loading does before it packs.
std::string load_error(std::filesystem::path const& directory) {
  return error_of([&] {
    repository tensors(directory);
    model_config const config = load_model_config(directory);
    (void)load_generation_config(directory, config.vocab_size);
    verify_weights(tensors, config);
  });
}

struct malformed {
  std::string name;
  std::function<void(fixture&)> make;
  std::string sentence;  // with DIR for the directory
};

std::string const layers = "model.language_model.layers.";
std::string const up = layers + "0.mlp.up_proj";
std::string const query = layers + "3.self_attn.q_proj";
std::string const qkv = layers + "0.linear_attn.in_proj_qkv";

std::string of(std::string const& module, std::string const& what) {
  return "linear \"" + module + "\": " + what;
}

// Sets element `index` of a tensor.
template <class Element>
void put(fixture& f, std::string const& name, std::size_t index, Element value) {
  std::memcpy(f.tensors.at(name).bytes.data() + sizeof value * index, &value, sizeof value);
}

json& declared(fixture& f) {
  return f.config["quantization_config"];
}

std::vector<malformed> compressed_tensors_nvfp4() {
  std::string const extra =
      " is there, but a weight_packed stored as U8 [96, 32] has no such scale";
  std::string const missing = " is missing, but the weight is quantised: U8 [96, 32]";
  return {
      {"both_weights",
       [](fixture& f) {
         f.add(up + ".weight", storage_dtype::bf16, {96, 64});
       },
       of(up, "weight and weight_packed are both there, so it is unclear which one is the weight")},
      {"no_divisor", [](fixture& f) { f.erase(up + ".weight_global_scale"); },
       of(up, "weight_global_scale" + missing)},
      {"no_block_scales", [](fixture& f) { f.erase(up + ".weight_scale"); },
       of(up, "weight_scale" + missing)},
      {"only_scales", [](fixture& f) { f.erase(up + ".weight_packed"); },
       of(up, "its weight is missing from the checkpoint")},
      {"divisor_zero", [](fixture& f) { put(f, up + ".weight_global_scale", 0, 0.0f); },
       of(up, "weight_global_scale is 0.000000, but a finite positive number is expected")},
      {"divisor_infinite",
       [](fixture& f) {
         put(f, up + ".weight_global_scale", 0, std::numeric_limits<float>::infinity());
       },
       of(up, "weight_global_scale is inf, but a finite positive number is expected")},
      {"divisor_subnormal", [](fixture& f) { put(f, up + ".weight_global_scale", 0, 1e-40f); },
       of(up,
          "weight_global_scale is 9.99995e-41, but a divisor whose reciprocal is a normal fp32 "
          "number is expected")},
      {"divisor_huge", [](fixture& f) { put(f, up + ".weight_global_scale", 0, 3e38f); },
       of(up,
          "weight_global_scale is 3e+38, but a divisor whose reciprocal is a normal fp32 number is "
          "expected")},
      {"divisor_per_row",
       [](fixture& f) {
         f.add_filled(up + ".weight_global_scale", storage_dtype::f32, {96}, 1.0f);
       },
       of(up, "weight_global_scale is F32 [96], but F32 [] is expected")},
      {"divisor_in_bf16",
       [](fixture& f) { f.add(up + ".weight_global_scale", storage_dtype::bf16, {1}); },
       of(up, "weight_global_scale is BF16 [1], but F32 [] is expected")},
      {"multiplier_beside_the_divisor", [](fixture& f) { f.add_f32(up + ".weight_scale_2", 1); },
       of(up, "weight_scale_2" + extra)},
      {"input_scale_of_the_other_exporter", [](fixture& f) { f.add_f32(up + ".input_scale", 1); },
       of(up, "input_scale" + extra)},
      {"not_packed",
       [](fixture& f) {
         f.tensors[up + ".weight_packed"].shape = {96, 64};
       },
       of(up, "weight_packed is U8 [96, 64], but U8 [96, 32] is expected")},
      {"packed_in_words",
       [](fixture& f) {
         f.add(up + ".weight_packed", storage_dtype::i32, {96, 8});
       },
       of(up, "weight_packed is I32 [96, 8], but U8 [96, 32] is expected")},
      {"groups_of_32",
       [](fixture& f) {
         f.tensors[up + ".weight_scale"].shape = {96, 2};
       },
       of(up, "weight_scale is F8_E4M3 [96, 2], but F8_E4M3 [96, 4] is expected")},
      {"block_scales_in_e8m0",
       [](fixture& f) { f.tensors[up + ".weight_scale"].dtype = storage_dtype::f8_e8m0; },
       of(up, "weight_scale is F8_E8M0 [96, 4], but F8_E4M3 [96, 4] is expected")},
  };
}

std::vector<malformed> channel_fp8() {
  std::string const forms =
      ", but F32 [] (tensor), F32 [256, 1] (channel) or F32 [2, 1] (128x128 blocks), or the same "
      "in "
      "BF16, is expected";
  std::string const scale = query + ".weight_scale";
  return {
      {"channel_scale_nan", [=](fixture& f) { put(f, scale, 3, std::uint16_t{0x7fc0}); },
       of(query, "weight_scale is nan at element 3, but a finite positive number is expected")},
      {"channel_scale_zero", [=](fixture& f) { put(f, scale, 255, std::uint16_t{0}); },
       of(query,
          "weight_scale is 0.000000 at element 255, but a finite positive number is expected")},
      {"channel_scales_across",
       [=](fixture& f) {
         f.tensors[scale].shape = {1, 256};
       },
       of(query, "weight_scale is BF16 [1, 256]" + forms)},
      {"one_channel_scale_too_few",
       [=](fixture& f) {
         f.add_filled(scale, storage_dtype::bf16, {255, 1}, std::uint16_t{0x3c00});
       },
       of(query, "weight_scale is BF16 [255, 1]" + forms)},
      {"channel_scales_in_f16", [=](fixture& f) { f.tensors[scale].dtype = storage_dtype::f16; },
       of(query, "weight_scale is F16 [256, 1]" + forms)},
      {"zero_points",
       [](fixture& f) {
         f.add(query + ".weight_zero_point", storage_dtype::i8, {256, 1});
       },
       of(query,
          "weight_zero_point means compressed-tensors' integer format, which is not supported; "
          "NVFP4, FP8 with tensor, channel or 128x128 block scales, BF16 and F16 are")},
      {"divisor_on_fp8", [](fixture& f) { f.add_f32(query + ".weight_global_scale", 1); },
       of(query,
          "weight_global_scale is there, but a weight stored as F8_E4M3 [256, 64] has no such "
          "scale")},
  };
}

std::vector<malformed> groups() {
  std::string const at = "DIR/config.json: quantization_config";
  std::string const agree = ", but both are expected to agree: ";
  return {
      {"integers_declared",
       [](fixture& f) { declared(f)["config_groups"]["group_1"]["weights"]["type"] = "int"; },
       at + " declares \"4 bit int\" for 18 linears that are stored as nvfp4" + agree + "\"" +
           layers + "0.mlp.gate_proj\", \"" + up + "\", \"" + layers +
           "0.mlp.down_proj\" and 15 more"},
      {"one_mlp_in_the_other_class",
       [](fixture& f) {
         for (char const* const s :
              {".weight_packed", ".weight_global_scale", ".input_global_scale"})
           f.erase(up + s);
         f.add(up + ".weight", storage_dtype::f8_e4m3, {96, 64});
         f.add_filled(up + ".weight_scale", storage_dtype::bf16, {96, 1}, std::uint16_t{0x3c00});
       },
       at + " declares \"NVFP4\" for 1 linears that are stored as fp8_channel" + agree + "\"" + up +
           "\""},
      {"head_is_on_the_ignore_list", [](fixture& f) { declared(f)["ignore"].push_back("lm_head"); },
       at + " declares no quantisation for 1 linears that are stored as fp8_channel" + agree +
           "\"lm_head\""},
      {"pattern_is_broken",
       [](fixture& f) { declared(f)["config_groups"]["group_1"]["targets"] = {"re:mlp.[a"}; },
       at + ".config_groups.group_1.targets has \"mlp.[a\", but a regular expression of ECMAScript "
            "in "
            "at most 4096 bytes is expected"},
      {"no_groups", [](fixture& f) { declared(f).erase("config_groups"); },
       at + ".config_groups is missing, but an object is expected"},
      {"group_without_weights",
       [](fixture& f) { declared(f)["config_groups"]["group_0"].erase("weights"); },
       at + ".config_groups.group_0.weights is missing, but an object is expected"},
      {"group_without_targets",
       [](fixture& f) { declared(f)["config_groups"]["group_0"].erase("targets"); },
       at + ".config_groups.group_0.targets is missing, but a list of module names is expected"},
      {"group_without_bits",
       [](fixture& f) { declared(f)["config_groups"]["group_0"]["weights"].erase("num_bits"); },
       at + ".config_groups.group_0.weights.num_bits is missing, but an integer from 1 to 64 is "
            "expected"},
      {"group_size_32_declared",
       [](fixture& f) { declared(f)["config_groups"]["group_1"]["weights"]["group_size"] = 32; },
       at + ".config_groups.group_1.weights.group_size is 32, but 16 is expected"},
      {"unknown_method", [](fixture& f) { declared(f)["quant_method"] = "bitsandbytes"; },
       at + ".quant_method is \"bitsandbytes\", but \"modelopt\", \"compressed-tensors\" or "
            "\"fp8\" is "
            "expected"},
      {"cache_bits_as_text", [](fixture& f) { declared(f)["kv_cache_scheme"]["num_bits"] = "8"; },
       at + ".kv_cache_scheme.num_bits is \"8\", but an integer from 1 to 32 is expected"},
  };
}

std::vector<malformed> block_fp8() {
  std::string const scale = qkv + ".weight_scale_inv";
  std::string const grid = ", but F32 [2, 1] (128x128 blocks), or the same in BF16, is expected";
  std::string const at = "DIR/config.json: quantization_config";
  return {
      {"no_scale", [=](fixture& f) { f.erase(scale); },
       of(qkv, "weight_scale is missing, but the weight is quantised: F8_E4M3 [256, 64]")},
      {"two_scales", [](fixture& f) { f.add_f32(qkv + ".weight_scale", 1); },
       of(qkv,
          "weight_scale is there, but a weight stored as F8_E4M3 [256, 64] has no such scale")},
      {"one_block_row_too_few",
       [=](fixture& f) {
         f.add_filled(scale, storage_dtype::f32, {1, 1}, 1.0f);
       },
       of(qkv, "weight_scale_inv is F32 [1, 1]" + grid)},
      {"blocks_of_64",
       [=](fixture& f) {
         f.add_filled(scale, storage_dtype::f32, {4, 1}, 1.0f);
       },
       of(qkv, "weight_scale_inv is F32 [4, 1]" + grid)},
      {"blocks_of_64_declared",
       [](fixture& f) {
         declared(f)["weight_block_size"] = {64, 64};
       },
       at + ".weight_block_size is [64,64], but [128,128] is expected"},
      {"negative_scale", [=](fixture& f) { put(f, scale, 1, -1.0f); },
       of(qkv,
          "weight_scale_inv is -1.000000 at element 1, but a finite positive number is expected")},
      {"e8m0_scale",
       [=](fixture& f) {
         f.add_filled(scale, storage_dtype::f8_e8m0, {2, 1}, std::uint8_t{127});
       },
       of(qkv, "weight_scale_inv is F8_E8M0 [2, 1]" + grid)},
      {"scale_on_a_dense_weight",
       [](fixture& f) {
         f.add("lm_head.weight_scale_inv", storage_dtype::f32, {1, 1});
       },
       of("lm_head",
          "weight_scale_inv is there, but a weight stored as BF16 [96, 64] has no such scale")},
      {"not_to_convert_but_converted",
       [](fixture& f) { declared(f)["modules_to_not_convert"].push_back(layers + "0.mlp"); },
       at +
           " declares no quantisation for 3 linears that are stored as fp8_block, but both are "
           "expected to agree: \"" +
           layers + "0.mlp.gate_proj\", \"" + up + "\", \"" + layers + "0.mlp.down_proj\""},
  };
}

std::vector<malformed> modelopt() {
  std::string const at = "DIR/config.json: quantization_config";
  return {
      {"another_algorithm_declared",
       [](fixture& f) { declared(f)["quantized_layers"][up]["quant_algo"] = "FP8"; },
       at +
           " declares \"FP8\" for 1 linears that are stored as nvfp4, but both are expected to "
           "agree: \"" +
           up + "\""},
      {"not_declared", [](fixture& f) { declared(f)["quantized_layers"].erase(query); },
       at +
           " declares no quantisation for 1 linears that are stored as fp8_tensor, but both are "
           "expected to agree: \"" +
           query + "\""},
      {"group_size_declared",
       [](fixture& f) { declared(f)["quantized_layers"][up]["group_size"] = 32; },
       at + ".quantized_layers." + up + ".group_size is 32, but 16 is expected"},
      {"input_scale_on_a_dense_weight",
       [](fixture& f) { f.add_f32(layers + "0.linear_attn.in_proj_a.input_scale", 1); },
       of(layers + "0.linear_attn.in_proj_a",
          "input_scale is there, but a weight stored as BF16 [4, 64] has no such scale")},
      {"input_scale_without_a_module",
       [](fixture& f) { f.add_f32(layers + "0.mlp.extra_proj.input_scale", 1); },
       "DIR: 1 tensors of the checkpoint are not used by this model: \"" + layers +
           "0.mlp.extra_proj.input_scale\""},
      {"cache_scale_of_a_layer_that_is_not_there",
       [](fixture& f) { f.add_f32(layers + "8.self_attn.k_scale", 1); },
       "DIR: 1 tensors of the checkpoint are not used by this model: \"" + layers +
           "8.self_attn.k_scale\""},
  };
}

void expect_each(fixture const& base, std::vector<malformed> const& cases) {
  {
    temp_directory const dir;
    base.write(dir.path());
    ASSERT_EQ(sentences(dir.path()), std::vector<std::string>{});
    ASSERT_EQ(load_error(dir.path()), "");
  }
  for (malformed const& c : cases) {
    fixture f = base;
    c.make(f);
    temp_directory const dir;
    f.write(dir.path());
    std::string expected = c.sentence;
    if (expected.starts_with("DIR")) expected.replace(0, 3, dir.path().string());
    EXPECT_EQ(sentences(dir.path()), std::vector<std::string>{"error: " + expected}) << c.name;
    EXPECT_EQ(load_error(dir.path()), expected) << c.name;
  }
}

TEST(malformed_checkpoint, compressed_tensors_nvfp4_is_refused_in_one_sentence) {
  expect_each(test::make_small_compressed(), compressed_tensors_nvfp4());
}

TEST(malformed_checkpoint, channel_fp8_is_refused_in_one_sentence) {
  expect_each(test::make_small_compressed(), channel_fp8());
}

TEST(malformed_checkpoint, groups_are_refused_in_one_sentence) {
  expect_each(test::make_small_compressed(), groups());
}

TEST(malformed_checkpoint, block_fp8_is_refused_in_one_sentence) {
  expect_each(test::make_small_blocks(), block_fp8());
}

TEST(malformed_checkpoint, modelopt_is_refused_in_one_sentence) {
  fixture base = test::make_small();
  base.hf_quant_config = nullptr;  // else it says the same a second time
  expect_each(base, modelopt());
}

TEST(mixed_checkpoint, counts_each_class) {
  temp_directory const dir;
  test::make_small_compressed().write(dir.path());
  inspection const result = inspect_checkpoint(dir.path());
  ASSERT_TRUE(result.weights.has_value());
  EXPECT_EQ(result.weights->of(quant_class::nvfp4).count, 6u * 3);
  EXPECT_EQ(result.weights->of(quant_class::fp8_channel).count, 2u * 4 + 6 * 3 + 2 * 3 + 1);
  EXPECT_EQ(result.kv_cache_algo, "FP8");
}

}  // namespace
}  // namespace qwen38::checkpoint

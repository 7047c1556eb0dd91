// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inspect.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/linear.hpp"
#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::checkpoint_fixture;
using test::temp_directory;

std::vector<std::string> sentences(inspection const& result) {
  std::vector<std::string> all;
  for (problem const& p : result.problems) {
    all.push_back((p.level == severity::error ? "error: " : "warning: ") + p.sentence);
  }
  return all;
}

// The table of the published checkpoint: bytes of each class, computed from the published shapes.
void expect_27b(inspection const& result) {
  EXPECT_EQ(sentences(result), std::vector<std::string>{});
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.files, 3u);
  EXPECT_EQ(result.tensors, 2194u);
  EXPECT_EQ(result.bytes, 21'921'428'072u);
  EXPECT_EQ(result.kv_cache_algo, "FP8");
  ASSERT_TRUE(result.weights.has_value());
  inventory const& w = *result.weights;
  EXPECT_EQ(w.prefix, "model.language_model.");
  auto const expect = [&](weight_group group, std::size_t count, std::uint64_t bytes) {
    EXPECT_EQ(w.of(group).count, count) << to_string(group);
    EXPECT_EQ(w.of(group).bytes, bytes) << to_string(group);
  };
  expect(weight_group::mlp, 64 * 3 * 2, 9'625'927'680);
  expect(weight_group::head, 2, 715'161'600);
  expect(weight_group::attention, 16 * 4, 1'677'721'600);
  expect(weight_group::gdn, 48 * 3, 5'536'481'280);
  expect(weight_group::embedding, 1, 2'542'796'800);
  expect(weight_group::gdn_gates, 48 * 2, 47'185'920);
  expect(weight_group::small, 64 * 2 + 1 + 16 * 2 + 48 * 4, 5'291'008);
  expect(weight_group::mtp, 15, 849'398'784);
  expect(weight_group::vision, 333, 921'460'192);
  expect(weight_group::scalars, 802, 3'208);
  expect(weight_group::unaccounted, 0, 0);
  EXPECT_EQ(w.all.count, 2194u);
  EXPECT_EQ(w.all.bytes, 21'921'428'072u);
  EXPECT_EQ(w.all.bytes - w.of(weight_group::vision).bytes, 20'999'967'880u);  // text and MTP
  EXPECT_EQ(w.of(quant_class::nvfp4).count, 193u);
  EXPECT_EQ(w.of(quant_class::fp8_tensor).count, 208u);
  EXPECT_EQ(w.of(quant_class::bf16).count, 96u + 8u);
  EXPECT_EQ(w.of(quant_class::f16).count, 0u);
}

TEST(inspect_27b, passes_on_all_real_names_and_shapes_with_the_published_bytes) {
  temp_directory const dir;
  try {
    test::make_27b().write(dir.path());
  } catch (error const& failure) {
    GTEST_SKIP() << "the file system holds no sparse files of this size: " << failure.what();
  }
  expect_27b(inspect_checkpoint(dir.path()));
}

TEST(inspect_27b, passes_on_the_headers_alone) {
  temp_directory const dir;
  test::make_27b().write_headers_only(dir.path());
  expect_27b(inspect_checkpoint(dir.path(), open_mode::headers_only));
  EXPECT_FALSE(inspect_checkpoint(dir.path(), open_mode::full).ok());
}

TEST(inspect_27b, accepts_the_sibling_with_a_dense_head) {
  checkpoint_fixture f = test::make_27b();
  for (char const* const suffix : {".weight_scale", ".weight_scale_2", ".input_scale"}) {
    f.erase(std::string("lm_head") + suffix);
  }
  f.tensors["lm_head.weight"] = {storage_dtype::bf16, {248320, 5120}, {}};
  temp_directory const dir;
  f.write_headers_only(dir.path());
  inspection const result = inspect_checkpoint(dir.path(), open_mode::headers_only);
  // The metadata still speaks of NVFP4: a warning from each document, and the tensors decide.
  std::string const warning =
      " declares \"NVFP4\" for 1 linears that are stored as bf16, and the tensors decide: "
      "\"lm_head\"";
  EXPECT_EQ(sentences(result),
            (std::vector<std::string>{
                "warning: " + (dir / "config.json").string() + ": quantization_config" + warning,
                "warning: " + (dir / "hf_quant_config.json").string() + warning}));
  EXPECT_TRUE(result.ok());
  ASSERT_TRUE(result.weights.has_value());
  EXPECT_EQ(result.weights->of(weight_group::head).bytes, 2'542'796'800u);
}

TEST(inspect_small, passes_and_leaves_nothing_over) {
  temp_directory const dir;
  test::make_small().write(dir.path());
  inspection const result = inspect_checkpoint(dir.path());
  EXPECT_EQ(sentences(result), std::vector<std::string>{});
  ASSERT_TRUE(result.weights.has_value());
  EXPECT_EQ(result.weights->of(quant_class::nvfp4).count, 25u);
  EXPECT_EQ(result.weights->of(quant_class::fp8_tensor).count, 2u * 4 + 6 * 3);
}

TEST(inspect_small, passes_on_a_text_only_export) {
  checkpoint_fixture const nested = test::make_small();
  checkpoint_fixture f = nested;
  f.tensors.clear();
  f.shard_of.clear();
  for (auto const& [name, tensor] : nested.tensors) {
    std::string const prefix = "model.language_model.";
    std::string const plain =
        name.starts_with(prefix) ? "model." + name.substr(prefix.size()) : name;
    f.add(plain, tensor.dtype, tensor.shape);
    f.tensors[plain].bytes = tensor.bytes;
  }
  f.config = nested.config["text_config"];
  temp_directory const dir;
  f.write(dir.path());
  inspection const result = inspect_checkpoint(dir.path());
  EXPECT_EQ(sentences(result), std::vector<std::string>{});
  ASSERT_TRUE(result.weights.has_value());
  EXPECT_EQ(result.weights->prefix, "model.");
}

struct damage {
  std::string name;
  std::function<void(checkpoint_fixture&)> make;
  std::vector<std::string> expected;  ///< with DIR for the directory
};

std::vector<damage> damages() {
  using fixture = checkpoint_fixture;
  std::string const layer0 = "model.language_model.layers.0.";
  return {
      {"a_scale_is_missing",
       [=](fixture& f) { f.erase(layer0 + "mlp.up_proj.weight_scale_2"); },
       {"error: linear \"" + layer0 +
        "mlp.up_proj\": weight_scale_2 is missing, but the weight is quantised: U8 [96, 32]"}},
      {"a_module_is_missing",
       [=](fixture& f) {
         for (char const* const s :
              {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"}) {
           f.erase(layer0 + "mlp.up_proj" + s);
         }
       },
       {"error: DIR: the checkpoint lacks 1 modules or tensors of the model: \"" + layer0 +
        "mlp.up_proj\""}},
      {"a_norm_is_missing_and_one_has_another_shape",
       [=](fixture& f) {
         f.erase(layer0 + "input_layernorm.weight");
         f.tensors["mtp.norm.weight"].shape = {63};
       },
       {"error: tensor \"mtp.norm.weight\" is BF16 [63], but BF16 [64] (or F16, F32) is expected",
        "error: DIR: the checkpoint lacks 1 modules or tensors of the model: \"" + layer0 +
            "input_layernorm.weight\""}},
      {"tensors_are_left_over",
       [](fixture& f) {
         f.add("model.language_model.layers.8.input_layernorm.weight", storage_dtype::bf16, {64});
         f.add("model.language_model.layers.0.mlp.extra", storage_dtype::i64, {2});
       },
       {"error: DIR: 2 tensors of the checkpoint are not used by this model: "
        "\"model.language_model.layers.0.mlp.extra\", "
        "\"model.language_model.layers.8.input_layernorm.weight\""}},
      {"the_config_declares_no_mtp",
       [](fixture& f) { f.config["text_config"]["mtp_num_hidden_layers"] = 0; },
       {"error: DIR: 15 tensors of the checkpoint are not used by this model: \"mtp.fc.weight\", "
        "\"mtp.layers.0.input_layernorm.weight\", \"mtp.layers.0.mlp.down_proj.weight\" and 12 "
        "more"}},
      {"cache_scales_are_ignored",
       [](fixture& f) {
         f.add_f32("model.language_model.layers.3.self_attn.k_proj.k_scale", 1);
         f.add_f32("model.language_model.layers.3.self_attn.v_proj.v_scale", 1);
       },
       {}},
      {"the_config_is_missing",
       [](fixture& f) { f.config = nullptr; },
       {"error: DIR/config.json: cannot open the file: No such file or directory"}},
      {"the_config_has_two_errors",
       [](fixture& f) {
         f.config["text_config"]["hidden_act"] = "gelu";
         f.config["text_config"].erase("head_dim");
         f.config["text_config"].erase("rope_parameters");
       },
       {"error: DIR/config.json: text_config.hidden_act is \"gelu\", but only \"silu\" is "
        "supported",
        "error: DIR/config.json: text_config.head_dim is missing, but an integer from 2 to 4096 is "
        "expected",
        "error: DIR/config.json: text_config.rope_theta is missing, but a number here or in "
        "rope_parameters is expected",
        "error: DIR/config.json: text_config.partial_rotary_factor times head_dim is 0.5, but an "
        "even number of dims is expected"}},
      {"the_stop_ids_are_missing_and_a_scale_is_nan",
       [](fixture& f) {
         f.generation = json::object();
         f.add_f32("lm_head.weight_scale_2", std::numeric_limits<float>::quiet_NaN());
       },
       {"error: DIR/generation_config.json: eos_token_id names no token, so that no answer could "
        "end; a token id or a list of them is expected",
        "error: linear \"lm_head\": weight_scale_2 is nan, but a finite positive number is "
        "expected"}},
      {"the_quantisation_document_names_another_model",
       [](fixture& f) {
         f.hf_quant_config["quantization"]["quantized_layers"]["model.layers.8.mlp.up_proj"] = {
             {"quant_algo", "FP8"}};
       },
       {"warning: DIR/hf_quant_config.json declares a quantisation for 1 modules that are not "
        "linears of this model: \"layers.8.mlp.up_proj\""}},
      {"the_quantisation_document_is_broken",
       [](fixture& f) { f.hf_quant_config = json::array(); },
       {"error: DIR/hf_quant_config.json: the JSON is array, not an object"}},
  };
}

TEST(inspect_small, reports_each_damage_and_nothing_else) {
  for (damage const& c : damages()) {
    checkpoint_fixture f = test::make_small();
    c.make(f);
    temp_directory const dir;
    f.write(dir.path());
    inspection const result = inspect_checkpoint(dir.path());
    std::vector<std::string> expected = c.expected;
    for (std::string& sentence : expected) {
      if (auto const at = sentence.find("DIR"); at != std::string::npos) {
        sentence.replace(at, 3, dir.path().string());
      }
    }
    EXPECT_EQ(sentences(result), expected) << c.name;
  }
}

TEST(inspect_small, prints_a_table_and_returns_0) {
  temp_directory const dir;
  test::make_small().write(dir.path());
  std::ostringstream out;
  EXPECT_EQ(print_inspection(out, inspect_checkpoint(dir.path()), false), 0);
  std::string const text = out.str();
  for (char const* const part :
       {"8 layers (6 linear, 2 full attention), hidden 64, MLP 96, vocabulary 96",
        "4 query and 2 kv heads of 32, RoPE on 8, theta 10000000.0", "stop ids       94 95\n",
        "KV cache       declared as FP8; kept in fp16 here\n",
        "embedding             1           12,288     0.000\n", "nvfp4                25",
        "0 errors, 0 warnings\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("unaccounted"), std::string::npos);
}

TEST(inspect_small, prints_the_bytes_of_each_rank_it_is_given) {
  temp_directory const dir;
  test::make_small().write(dir.path());
  inspection result = inspect_checkpoint(dir.path());
  std::ostringstream alone;
  EXPECT_EQ(print_inspection(alone, result, false), 0);
  EXPECT_EQ(alone.str().find("rank 0"), std::string::npos);

  result.ranks.resize(2);
  result.ranks[1][static_cast<std::size_t>(weight_group::mlp)] = 12345;
  result.ranks[1][static_cast<std::size_t>(weight_group::embedding)] = 5;
  std::ostringstream table;
  EXPECT_EQ(print_inspection(table, result, false), 0);
  EXPECT_NE(table.str().find("rank 1 of 2\n"
                             "mlp                               12,345     0.000\n"
                             "embedding                              5     0.000\n"
                             "total                             12,350     0.000\n"),
            std::string::npos)
      << table.str();
  std::ostringstream object;
  EXPECT_EQ(print_inspection(object, result, true), 0);
  json const ranks = json::parse(object.str())["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1]["bytes"]["mlp"], 12345);
  EXPECT_EQ(ranks[0]["bytes"]["mlp"], 0);
}

TEST(inspect_small, prints_json_and_returns_2_for_an_error) {
  checkpoint_fixture f = test::make_small();
  f.add("stray", storage_dtype::u8, {5});
  temp_directory const dir;
  f.write(dir.path());
  std::ostringstream out;
  EXPECT_EQ(print_inspection(out, inspect_checkpoint(dir.path()), true), 2);
  json const object = json::parse(out.str());
  EXPECT_EQ(object["ok"], false);
  EXPECT_EQ(object["classes"]["unaccounted"], (json{{"tensors", 1}, {"bytes", 5}}));
  EXPECT_EQ(object["linears"]["nvfp4"]["modules"], 25);
  EXPECT_EQ(object["config"]["hidden_size"], 64);
  EXPECT_EQ(object["eos_token_ids"], (json{94, 95}));
  ASSERT_EQ(object["problems"].size(), 1u);
  EXPECT_EQ(object["problems"][0]["level"], "error");
}

TEST(inspect_small, prints_one_error_for_a_directory_that_does_not_exist) {
  temp_directory const dir;
  std::ostringstream out;
  EXPECT_EQ(print_inspection(out, inspect_checkpoint(dir / "none"), false), 2);
  EXPECT_NE(out.str().find("error: " + (dir / "none").string() +
                           ": no such directory\n1 errors, 0 warnings\n"),
            std::string::npos)
      << out.str();
}

// Checkpoints that other parts of the project own: they must pass as they are.
class inspect_committed : public testing::TestWithParam<char const*> {};
TEST_P(inspect_committed, passes) {
  std::filesystem::path const directory = GetParam();
  inspection const result = inspect_checkpoint(directory);
  EXPECT_EQ(sentences(result), std::vector<std::string>{});
}
INSTANTIATE_TEST_SUITE_P(directories, inspect_committed,
                         testing::Values("../model/golden/tiny", "../../demo_model"),
                         [](auto const& param) { return std::to_string(param.index); });

}  // namespace
}  // namespace qwen38::checkpoint

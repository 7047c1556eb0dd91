// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::error_of;

model_config parse(json const& document) {
  diagnostics strict(diagnostics::mode::strict);
  return parse_model_config(document, "c", strict);
}

json full() {
  return test::make_27b().config;
}

void expect_27b(model_config const& c) {
  EXPECT_EQ(c.vocab_size, 248320);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.intermediate_size, 17408);
  ASSERT_EQ(c.num_hidden_layers, 64);
  ASSERT_EQ(c.layers.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(c.layers[i] == layer_kind::full_attention, i % 4 == 3) << i;
  }
  EXPECT_EQ(c.num_attention_heads, 24);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_EQ(c.rope_theta, 1e7);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.linear_num_key_heads, 16);
  EXPECT_EQ(c.linear_num_value_heads, 48);
  EXPECT_EQ(c.linear_key_head_dim, 128);
  EXPECT_EQ(c.linear_value_head_dim, 128);
  EXPECT_EQ(c.conv_kernel, 4);
  EXPECT_EQ(c.max_position_embeddings, 262144);
  EXPECT_EQ(c.mtp_num_hidden_layers, 1);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.q_proj_rows(), 12288);
  EXPECT_EQ(c.attention_dim(), 6144);
  EXPECT_EQ(c.kv_dim(), 1024);
  EXPECT_EQ(c.linear_key_dim(), 2048);
  EXPECT_EQ(c.linear_value_dim(), 6144);
  EXPECT_EQ(c.linear_qkv_dim(), 10240);
}

TEST(model_config, reads_the_published_27b) {
  expect_27b(parse(full()));
}

TEST(model_config, reads_each_spelling_to_the_same_model) {
  {
    json text_only = full()["text_config"];
    expect_27b(parse(text_only));
  }
  {
    json interval_only = full();
    interval_only["text_config"].erase("layer_types");
    expect_27b(parse(interval_only));
  }
  {
    json types_only = full();
    types_only["text_config"].erase("full_attention_interval");
    expect_27b(parse(types_only));
  }
  {
    json factor_inside = full();
    factor_inside["text_config"].erase("partial_rotary_factor");
    expect_27b(parse(factor_inside));
  }
  {
    json beside = full();
    beside["text_config"].erase("rope_parameters");
    beside["text_config"]["rope_theta"] = 1e7;
    expect_27b(parse(beside));
  }
  {
    json sparse = full();
    for (char const* const key :
         {"hidden_act", "attention_bias", "attn_output_gate", "output_gate_type",
          "tie_word_embeddings", "mtp_use_dedicated_embeddings", "model_type"}) {
      sparse["text_config"].erase(key);
    }
    expect_27b(parse(sparse));
  }
  {
    json outer_mtp = full();
    outer_mtp["text_config"].erase("mtp_num_hidden_layers");
    outer_mtp["mtp_num_hidden_layers"] = 1;
    expect_27b(parse(outer_mtp));
  }
}

TEST(model_config, has_no_mtp_where_none_is_declared) {
  json document = full();
  document["text_config"].erase("mtp_num_hidden_layers");
  EXPECT_EQ(parse(document).mtp_num_hidden_layers, 0);
}

struct wrong_config {
  std::string name;
  std::function<void(json& document, json& text)> change;
  std::string sentence;
};

std::vector<wrong_config> wrong_configs() {
  return {
      {"no_model_type", [](json& d, json&) { d.erase("model_type"); },
       "c: model_type is missing, but \"qwen3_5\" or \"qwen3_5_text\" is expected"},
      {"another_family", [](json& d, json&) { d["model_type"] = "llama"; },
       "c: model_type is \"llama\", but only \"qwen3_5\" or \"qwen3_5_text\" is supported"},
      {"another_text_family", [](json&, json& t) { t["model_type"] = "qwen3_5_moe_text"; },
       "c: text_config.model_type is \"qwen3_5_moe_text\", but only \"qwen3_5\" or "
       "\"qwen3_5_text\" is supported"},
      {"experts", [](json&, json& t) { t["num_experts"] = 64; },
       "c: text_config.num_experts is there, but only dense models are supported"},
      {"text_config_is_a_list", [](json& d, json&) { d["text_config"] = json::array(); },
       "c: text_config is [], but an object is expected"},
      {"missing", [](json&, json& t) { t.erase("hidden_size"); },
       "c: text_config.hidden_size is missing, but an integer from 1 to 1048576 is expected"},
      {"null_is_missing", [](json&, json& t) { t["vocab_size"] = nullptr; },
       "c: text_config.vocab_size is missing, but an integer from 1 to 16777216 is expected"},
      {"zero", [](json&, json& t) { t["intermediate_size"] = 0; },
       "c: text_config.intermediate_size is 0, but an integer from 1 to 1048576 is expected"},
      {"negative", [](json&, json& t) { t["num_hidden_layers"] = -1; },
       "c: text_config.num_hidden_layers is -1, but an integer from 1 to 4096 is expected"},
      {"fraction", [](json&, json& t) { t["head_dim"] = 256.5; },
       "c: text_config.head_dim is 256.5, but an integer from 2 to 4096 is expected"},
      {"text", [](json&, json& t) { t["head_dim"] = "256"; },
       "c: text_config.head_dim is \"256\", but an integer from 2 to 4096 is expected"},
      {"over_int64", [](json&, json& t) { t["hidden_size"] = 18446744073709551615ull; },
       "c: text_config.hidden_size is 18446744073709551615, but an integer from 1 to 1048576 is "
       "expected"},
      {"absurd", [](json&, json& t) { t["hidden_size"] = 1048577; },
       "c: text_config.hidden_size is 1048577, but an integer from 1 to 1048576 is expected"},
      {"kv_heads_do_not_divide", [](json&, json& t) { t["num_key_value_heads"] = 5; },
       "c: text_config.num_attention_heads is 24, but a multiple of num_key_value_heads, 5, is "
       "expected"},
      {"key_heads_do_not_divide", [](json&, json& t) { t["linear_num_key_heads"] = 7; },
       "c: text_config.linear_num_value_heads is 48, but a multiple of linear_num_key_heads, 7, is "
       "expected"},
      {"too_few_layer_types", [](json&, json& t) { t["layer_types"].erase(0); },
       "c: text_config.layer_types has 63 entries, but num_hidden_layers is 64"},
      {"unknown_layer_type", [](json&, json& t) { t["layer_types"][2] = "sliding_attention"; },
       "c: text_config.layer_types[2] is \"sliding_attention\", but \"linear_attention\" or "
       "\"full_attention\" is expected"},
      {"layer_type_is_a_number", [](json&, json& t) { t["layer_types"][2] = 3; },
       "c: text_config.layer_types[2] is number, but \"linear_attention\" or \"full_attention\" is "
       "expected"},
      {"no_pattern",
       [](json&, json& t) {
         t.erase("layer_types");
         t.erase("full_attention_interval");
       },
       "c: text_config.layer_types is missing, but it or full_attention_interval is expected"},
      {"interval_zero",
       [](json&, json& t) {
         t.erase("layer_types");
         t["full_attention_interval"] = 0;
       },
       "c: text_config.full_attention_interval is 0, but an integer from 1 to 4096 is expected"},
      {"theta_missing", [](json&, json& t) { t["rope_parameters"].erase("rope_theta"); },
       "c: text_config.rope_theta is missing, but a number here or in rope_parameters is expected"},
      {"theta_contradicts", [](json&, json& t) { t["rope_theta"] = 10000; },
       "c: text_config.rope_theta is 10000.0, but rope_parameters.rope_theta is 10000000.0"},
      {"factor_contradicts", [](json&, json& t) { t["partial_rotary_factor"] = 1.0; },
       "c: text_config.partial_rotary_factor is 1.0, but rope_parameters.partial_rotary_factor is "
       "0.25"},
      {"odd_rotary_dim",
       [](json&, json& t) {
         t["head_dim"] = 12;
         t["rope_parameters"].erase("mrope_section");
       },
       "c: text_config.partial_rotary_factor times head_dim is 3.0, but an even number of dims is "
       "expected"},
      {"fractional_rotary_dim", [](json&, json& t) { t["head_dim"] = 250; },
       "c: text_config.partial_rotary_factor times head_dim is 62.5, but an even number of dims is "
       "expected"},
      {"no_rotary_dim",
       [](json&, json& t) {
         t["partial_rotary_factor"] = 0;
         t["rope_parameters"]["partial_rotary_factor"] = 0;
       },
       "c: text_config.partial_rotary_factor times head_dim is 0.0, but an even number of dims is "
       "expected"},
      {"yarn", [](json&, json& t) { t["rope_parameters"]["rope_type"] = "yarn"; },
       "c: text_config.rope_parameters.rope_type is \"yarn\", but only \"default\" is supported"},
      {"old_yarn",
       [](json&, json& t) {
         t["rope_scaling"] = {{"type", "yarn"}};
       },
       "c: text_config.rope_scaling.type is \"yarn\", but only \"default\" is supported"},
      {"mrope_section",
       [](json&, json& t) {
         t["rope_parameters"]["mrope_section"] = {11, 11, 11};
       },
       "c: text_config.rope_parameters.mrope_section is [11,11,11], but a list of counts that sum "
       "to half the rotary dim, 32, is expected"},
      {"activation", [](json&, json& t) { t["hidden_act"] = "gelu"; },
       "c: text_config.hidden_act is \"gelu\", but only \"silu\" is supported"},
      {"attention_bias", [](json&, json& t) { t["attention_bias"] = true; },
       "c: text_config.attention_bias is true, but only false is supported"},
      {"no_output_gate", [](json&, json& t) { t["attn_output_gate"] = false; },
       "c: text_config.attn_output_gate is false, but only true is supported"},
      {"output_gate_type", [](json&, json& t) { t["output_gate_type"] = "tanh"; },
       "c: text_config.output_gate_type is \"tanh\", but only \"swish\" or \"silu\" is supported"},
      {"dedicated_mtp_embeddings", [](json&, json& t) { t["mtp_use_dedicated_embeddings"] = true; },
       "c: text_config.mtp_use_dedicated_embeddings is true, but only false is supported"},
      {"boolean_is_a_number", [](json&, json& t) { t["attention_bias"] = 0; },
       "c: text_config.attention_bias is 0, but true or false is expected"},
      {"two_mtp_layers", [](json&, json& t) { t["mtp_num_hidden_layers"] = 2; },
       "c: text_config.mtp_num_hidden_layers is 2, but an integer from 0 to 1 is expected"},
      {"eps_missing", [](json&, json& t) { t.erase("rms_norm_eps"); },
       "c: text_config.rms_norm_eps is missing, but a number is expected"},
      {"eps_zero", [](json&, json& t) { t["rms_norm_eps"] = 0.0; },
       "c: text_config.rms_norm_eps is 0.0, but a number from 1e-12 to 0.01 is expected"},
      {"conv_of_one_tap", [](json&, json& t) { t["linear_conv_kernel_dim"] = 1; },
       "c: text_config.linear_conv_kernel_dim is 1, but an integer from 2 to 16 is expected"},
      {"tie_contradicts", [](json& d, json&) { d["tie_word_embeddings"] = true; },
       "c: text_config.tie_word_embeddings contradicts the tie_word_embeddings at the top of the "
       "document"},
  };
}

TEST(model_config, refuses_each_wrong_field_with_its_path) {
  for (wrong_config const& c : wrong_configs()) {
    json document = full();
    c.change(document, document["text_config"]);
    EXPECT_EQ(error_of([&] { (void)parse(document); }), c.sentence) << c.name;
  }
}

TEST(model_config, collects_all_wrong_fields) {
  json document = full();
  document["text_config"].erase("hidden_size");
  document["text_config"]["hidden_act"] = "gelu";
  document["text_config"]["head_dim"] = 0;
  diagnostics report(diagnostics::mode::collecting);
  (void)parse_model_config(document, "c", report);
  std::vector<std::string> found;
  for (problem const& p : report.problems())
    found.push_back(p.sentence.substr(0, p.sentence.find(" is ")));
  EXPECT_EQ(found,
            (std::vector<std::string>{"c: text_config.hidden_act", "c: text_config.hidden_size",
                                      "c: text_config.head_dim",
                                      "c: text_config.partial_rotary_factor times head_dim"}));
}

TEST(model_config, names_the_file) {
  test::temp_directory const dir;
  std::string const path = (dir / "config.json").string();
  EXPECT_EQ(error_of([&] { (void)load_model_config(dir.path()); }),
            path + ": cannot open the file: No such file or directory");
  test::write_file(dir / "config.json", "{\"model_type\":");
  EXPECT_EQ(error_of([&] { (void)load_model_config(dir.path()); }),
            path + ": not valid JSON at byte 15");
  test::write_file(dir / "config.json", full().dump());
  expect_27b(load_model_config(dir.path()));
}

generation_config parse_generation(json const& document) {
  diagnostics strict(diagnostics::mode::strict);
  return parse_generation_config(document, "g", 248320, strict);
}

TEST(generation_config, reads_the_published_file) {
  generation_config const g = parse_generation(test::make_27b().generation);
  EXPECT_EQ(g.eos_token_ids, (std::vector<std::int64_t>{248046, 248044}));
  EXPECT_EQ(g.bos_token_id, 248044);
  EXPECT_EQ(g.pad_token_id, 248044);
  EXPECT_TRUE(g.do_sample);
  EXPECT_EQ(g.temperature, 1.0);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.top_p, 0.95);
}

TEST(generation_config, leaves_off_what_the_file_leaves_out) {
  generation_config const g = parse_generation({{"eos_token_id", 7}});
  EXPECT_EQ(g.eos_token_ids, (std::vector<std::int64_t>{7}));
  EXPECT_FALSE(g.bos_token_id.has_value());
  EXPECT_FALSE(g.do_sample);
  EXPECT_EQ(g.top_k, 0);
  EXPECT_EQ(g.top_p, 1.0);
  EXPECT_EQ(g.min_p, 0.0);
  EXPECT_EQ(g.repetition_penalty, 1.0);
}

TEST(generation_config, refuses_each_wrong_field_with_its_path) {
  std::string const ids = ", but a token id below the vocabulary's 248320 rows is expected";
  std::string const none =
      "g: eos_token_id names no token, so that no answer could end; a token id or a list of them "
      "is expected";
  std::vector<std::pair<json, std::string>> const cases = {
      {json::object(), none},
      {{{"eos_token_id", nullptr}}, none},
      {{{"eos_token_id", json::array()}}, none},
      {{{"eos_token_id", 248320}}, "g: eos_token_id is 248320" + ids},
      {{{"eos_token_id", -1}}, "g: eos_token_id is -1" + ids},
      {{{"eos_token_id", {1, "2"}}}, "g: eos_token_id[1] is \"2\"" + ids},
      {{{"eos_token_id", 1}, {"pad_token_id", 248320}},
       "g: pad_token_id is 248320, but an integer from 0 to 248319 is expected"},
      {{{"eos_token_id", 1}, {"temperature", -0.5}},
       "g: temperature is -0.5, but a number from 0.0 to 100.0 is expected"},
      {{{"eos_token_id", 1}, {"top_p", 1.5}},
       "g: top_p is 1.5, but a number from 0.0 to 1.0 is expected"},
      {{{"eos_token_id", 1}, {"top_k", -1}},
       "g: top_k is -1, but an integer from 0 to 16777216 is expected"},
      {{{"eos_token_id", 1}, {"do_sample", "yes"}},
       "g: do_sample is \"yes\", but true or false is expected"},
  };
  for (auto const& wrong : cases) {
    EXPECT_EQ(error_of([&] { (void)parse_generation(wrong.first); }), wrong.second) << wrong.first;
  }
}

}  // namespace
}  // namespace qwen38::checkpoint

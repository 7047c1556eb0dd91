// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantization_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::error_of;
using names = std::vector<std::string>;

// A second, slow opinion: tries every length for each '*'.
bool matches_by_definition(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && name.front() == pattern.front() &&
           matches_by_definition(pattern.substr(1), name.substr(1));
  }
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (matches_by_definition(pattern.substr(1), name.substr(i))) return true;
  }
  return false;
}

TEST(wildcard, agrees_with_its_definition_on_all_short_texts) {
  auto const text = [](unsigned code, std::string_view alphabet) {
    std::string out;
    for (; code != 0; code /= static_cast<unsigned>(alphabet.size() + 1)) {
      unsigned const digit = code % static_cast<unsigned>(alphabet.size() + 1);
      if (digit != 0) out += alphabet[digit - 1];
    }
    return out;
  };
  for (unsigned p = 0; p < 1024; ++p) {
    for (unsigned n = 0; n < 243; ++n) {
      std::string const pattern = text(p, "*ab");
      std::string const name = text(n, "ab");
      ASSERT_EQ(matches_wildcard(pattern, name), matches_by_definition(pattern, name))
          << pattern << " " << name;
    }
  }
}

quantization_declaration parse_hf(json const& document) {
  diagnostics strict(diagnostics::mode::strict);
  return parse_hf_quant_config(document, "h", strict);
}

TEST(quantization_declaration, reads_both_documents_alike) {
  test::checkpoint_fixture const f = test::make_27b();
  diagnostics strict(diagnostics::mode::strict);
  quantization_declaration const hf = parse_hf(f.hf_quant_config);
  std::optional<quantization_declaration> const inner =
      parse_quantization_config(f.config, "c", strict);
  ASSERT_TRUE(inner.has_value());
  EXPECT_EQ(inner->source, "c: quantization_config");
  EXPECT_EQ(hf.layers.size(), 401u);
  EXPECT_EQ(hf.layers, inner->layers);
  EXPECT_EQ(hf.kv_cache_algo, "FP8");
  EXPECT_EQ(inner->kv_cache_algo, "FP8");
  EXPECT_EQ(hf.algos_of("lm_head"), names{"NVFP4"});
  EXPECT_EQ(hf.algos_of("model.language_model.layers.3.self_attn.q_proj"), names{"FP8"});
  EXPECT_EQ(hf.algos_of("model.layers.3.self_attn.q_proj"), names{"FP8"});
  EXPECT_EQ(hf.algos_of("mtp.fc"), names{""});
  EXPECT_EQ(hf.algos_of("model.language_model.layers.0.linear_attn.in_proj_a"), names{""});
}

TEST(quantization_declaration, applies_a_uniform_algorithm_to_what_is_not_excluded) {
  quantization_declaration const declared =
      parse_hf({{"quantization",
                 {{"quant_algo", "FP8"}, {"exclude_modules", {"lm_head", "*in_proj_a", "mtp*"}}}}});
  EXPECT_EQ(declared.algos_of("model.layers.0.mlp.up_proj"), names{"FP8"});
  EXPECT_EQ(declared.algos_of("lm_head"), names{""});
  EXPECT_EQ(declared.algos_of("model.layers.0.linear_attn.in_proj_a"), names{""});
  EXPECT_EQ(declared.algos_of("mtp.fc"), names{""});
}

TEST(quantization_declaration, says_nothing_where_the_document_says_nothing) {
  EXPECT_EQ(parse_hf({{"quantization", {{"quant_algo", "MIXED_PRECISION"}}}}).algos_of("lm_head"),
            names{});
  EXPECT_EQ(parse_hf({{"quantization", json::object()}}).algos_of("lm_head"), names{});
  diagnostics strict(diagnostics::mode::strict);
  EXPECT_FALSE(parse_quantization_config(json::object(), "c", strict).has_value());
}

TEST(quantization_declaration, refuses_malformed_documents) {
  std::vector<std::pair<json, std::string>> const cases = {
      {json::object(), "h: quantization is missing, but an object is expected"},
      {{{"quantization", 3}}, "h: quantization is 3, but an object is expected"},
      {{{"quantization", {{"quant_algo", 8}}}},
       "h: quantization.quant_algo is 8, but a string is expected"},
      {{{"quantization", {{"exclude_modules", "mtp*"}}}},
       "h: quantization.exclude_modules is not a list of module names"},
      {{{"quantization", {{"exclude_modules", {1}}}}},
       "h: quantization.exclude_modules is not a list of module names"},
      {{{"quantization", {{"quantized_layers", json::array()}}}},
       "h: quantization.quantized_layers is [], but an object is expected"},
      {{{"quantization", {{"quantized_layers", {{"a", "FP8"}}}}}},
       "h: quantization.quantized_layers.a is \"FP8\", but an object is expected"},
      {{{"quantization", {{"quantized_layers", {{"a", json::object()}}}}}},
       "h: quantization.quantized_layers.a.quant_algo is missing, but a string is expected"},
  };
  for (auto const& wrong : cases) {
    EXPECT_EQ(error_of([&] { (void)parse_hf(wrong.first); }), wrong.second) << wrong.first;
  }
}

TEST(quantization_declaration, gives_one_sentence_for_each_kind_of_contradiction) {
  json const layers = {{"a", {{"quant_algo", "FP8"}}},         {"b", {{"quant_algo", "FP8"}}},
                       {"c", {{"quant_algo", "W4A16_NVFP4"}}}, {"d", {{"quant_algo", "NVFP4"}}},
                       {"e", {{"quant_algo", "INT4_AWQ"}}},    {"gone", {{"quant_algo", "FP8"}}}};
  quantization_declaration const declared =
      parse_hf({{"quantization", {{"quantized_layers", layers}}}});
  std::vector<stored_linear> const stored = {
      {"model.a", quant_class::nvfp4},      {"model.b", quant_class::nvfp4},
      {"model.c", quant_class::nvfp4},      {"model.d", quant_class::bf16},
      {"model.e", quant_class::fp8_tensor}, {"model.f", quant_class::fp8_tensor},
      {"model.g", quant_class::f16}};
  diagnostics report(diagnostics::mode::collecting);
  compare_declaration(declared, stored, report);
  names sentences;
  for (problem const& p : report.problems()) {
    sentences.push_back((p.level == severity::error ? "error: " : "warning: ") + p.sentence);
  }
  EXPECT_EQ(
      sentences,
      (names{"error: h declares \"FP8\" for 2 linears that are stored as nvfp4, but both are "
             "expected to agree: \"model.a\", \"model.b\"",
             "error: h declares \"INT4_AWQ\" for 1 linears that are stored as fp8_tensor, but "
             "both are expected to agree: \"model.e\"",
             "warning: h declares \"NVFP4\" for 1 linears that are stored as bf16, and the "
             "tensors decide: \"model.d\"",
             "error: h declares no quantisation for 1 linears that are stored as fp8_tensor, "
             "but both are expected to agree: \"model.f\"",
             "warning: h declares a quantisation for 1 modules that are not linears of this "
             "model: \"gone\""}));
}

quantization_declaration parse_inner(json const& quantization) {
  diagnostics strict(diagnostics::mode::strict);
  return parse_quantization_config({{"quantization_config", quantization}}, "c", strict).value();
}

json group_of(int bits, std::string const& strategy, json const& targets) {
  json weights = {{"num_bits", bits}, {"type", "float"}, {"strategy", strategy}};
  if (bits == 4) weights["group_size"] = 16;
  return {{"weights", weights}, {"targets", targets}};
}

// The published mixed groups: FP8 per channel for attention, head and the last MLPs, NVFP4 for the
// other MLPs, and patterns of both that match one module.
json mixed_groups() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "mixed-precision"},
          {"config_groups",
           {{"group_0", group_of(8, "channel",
                                 {"re:.*self_attn.(q|k|v|o)_proj$", "re:.*linear_attn.*", "lm_head",
                                  "re:.*layers\\.(5[6-9]|6[0-3])\\.mlp\\..*"})},
            {"group_1", group_of(4, "tensor_group", {"re:.*mlp\\.(gate|up|down)_proj$"})}}},
          {"ignore", {"re:.*in_proj_[ab]$", "re:^mtp.*"}}};
}

TEST(quantization_declaration, resolves_the_groups_of_compressed_tensors) {
  quantization_declaration const declared = parse_inner(mixed_groups());
  std::string const channel = "FP8_PER_CHANNEL_PER_TOKEN";
  std::string const layers = "model.language_model.layers.";
  EXPECT_EQ(declared.algos_of(layers + "3.self_attn.q_proj"), names{channel});
  EXPECT_EQ(declared.algos_of(layers + "0.linear_attn.out_proj"), names{channel});
  EXPECT_EQ(declared.algos_of("lm_head"), names{channel});
  EXPECT_EQ(declared.algos_of(layers + "0.linear_attn.in_proj_a"), names{""});
  EXPECT_EQ(declared.algos_of("mtp.layers.0.mlp.up_proj"), names{""});
  EXPECT_EQ(declared.algos_of(layers + "55.mlp.up_proj"), names{"NVFP4"});
  EXPECT_EQ(declared.algos_of(layers + "56.mlp.up_proj"), (names{channel, "NVFP4"}));
  EXPECT_EQ(declared.algos_of("model.layers.7.unheard_of"), names{""});
}

TEST(quantization_declaration, takes_a_class_name_for_what_no_name_matches) {
  json document = mixed_groups();
  document["config_groups"] = {{"a", group_of(8, "tensor", {"Linear"})},
                               {"b", group_of(4, "tensor_group", {"re:.*mlp.*"})},
                               {"c", group_of(8, "block", {"model.layers.0.mlp.up_proj"})}};
  quantization_declaration const declared = parse_inner(document);
  EXPECT_EQ(declared.algos_of("model.layers.3.self_attn.q_proj"), names{"FP8"});
  EXPECT_EQ(declared.algos_of("model.language_model.layers.1.mlp.up_proj"), names{"NVFP4"});
  EXPECT_EQ(declared.algos_of("model.language_model.layers.0.mlp.up_proj"),
            (names{"FP8_PB_WO", "NVFP4"}));
}

TEST(quantization_declaration, reads_the_block_format) {
  quantization_declaration const declared =
      parse_inner({{"quant_method", "fp8"},
                   {"weight_block_size", {128, 128}},
                   {"modules_to_not_convert",
                    {"lm_head", "model.language_model.layers.0.linear_attn.in_proj_a", "mtp"}}});
  EXPECT_EQ(declared.algos_of("model.layers.0.mlp.up_proj"), names{"FP8_PB_WO"});
  EXPECT_EQ(declared.algos_of("model.layers.0.linear_attn.in_proj_a"), names{""});
  EXPECT_EQ(declared.algos_of("mtp.layers.0.mlp.up_proj"), names{""});
  EXPECT_EQ(declared.algos_of("lm_head"), names{""});
  EXPECT_EQ(parse_inner({{"quant_method", "fp8"}}).algos_of("lm_head"), names{"FP8"});
}

// A pattern of a stranger must not cost exponential time: (a*)*b on a name without b.
TEST(quantization_declaration, matches_hostile_patterns_in_time) {
  module_pattern const hostile("re:(a*)*(a*)*(a*)*b", module_pattern::syntax::target);
  EXPECT_FALSE(hostile.matches(std::string(200, 'a')));
}

TEST(quantization_declaration, refuses_malformed_groups) {
  auto const with = [](json const& patch) {
    json document = mixed_groups();
    document.merge_patch(patch);
    return document;
  };
  auto const group = [&](json const& patch) {
    return with({{"config_groups", {{"group_1", patch}}}});
  };
  std::string const at = "c: quantization_config.";
  std::vector<std::pair<json, std::string>> const cases = {
      {with({{"quant_method", "awq"}}),
       at + "quant_method is \"awq\", but \"modelopt\", \"compressed-tensors\" or \"fp8\" is "
            "expected"},
      {with({{"config_groups", nullptr}}),
       at + "config_groups is missing, but an object is expected"},
      {group({{"weights", nullptr}}),
       at + "config_groups.group_1.weights is missing, but an object is expected"},
      {group({{"targets", nullptr}}),
       at + "config_groups.group_1.targets is missing, but a list of module names is expected"},
      {group({{"targets", {"re:("}}}),
       at + "config_groups.group_1.targets has \"(\", but a regular expression of ECMAScript in at "
            "most 4096 bytes is expected"},
      {group({{"weights", {{"group_size", 32}}}}),
       at + "config_groups.group_1.weights.group_size is 32, but 16 is expected"},
      {group(
           {{"weights", {{"num_bits", 8}, {"strategy", "block"}, {"block_structure", {64, 64}}}}}),
       at + "config_groups.group_1.weights.block_structure is [64,64], but [128,128] is expected"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}},
       at + "weight_block_size is [64,128], but [128,128] is expected"},
  };
  for (auto const& wrong : cases) {
    EXPECT_EQ(error_of([&] { (void)parse_inner(wrong.first); }), wrong.second) << wrong.first;
  }
}

}  // namespace
}  // namespace qwen38::checkpoint

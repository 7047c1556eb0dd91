// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantization_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint_fixture.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using test::error_of;

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
  EXPECT_EQ(hf.algo_of("lm_head"), "NVFP4");
  EXPECT_EQ(hf.algo_of("model.language_model.layers.3.self_attn.q_proj"), "FP8");
  EXPECT_EQ(hf.algo_of("model.layers.3.self_attn.q_proj"), "FP8");
  EXPECT_EQ(hf.algo_of("mtp.fc"), "");
  EXPECT_EQ(hf.algo_of("model.language_model.layers.0.linear_attn.in_proj_a"), "");
}

TEST(quantization_declaration, applies_a_uniform_algorithm_to_what_is_not_excluded) {
  quantization_declaration const declared =
      parse_hf({{"quantization",
                 {{"quant_algo", "FP8"}, {"exclude_modules", {"lm_head", "*in_proj_a", "mtp*"}}}}});
  EXPECT_EQ(declared.algo_of("model.layers.0.mlp.up_proj"), "FP8");
  EXPECT_EQ(declared.algo_of("lm_head"), "");
  EXPECT_EQ(declared.algo_of("model.layers.0.linear_attn.in_proj_a"), "");
  EXPECT_EQ(declared.algo_of("mtp.fc"), "");
}

TEST(quantization_declaration, says_nothing_where_the_document_says_nothing) {
  EXPECT_EQ(parse_hf({{"quantization", {{"quant_algo", "MIXED_PRECISION"}}}}).algo_of("lm_head"),
            std::nullopt);
  EXPECT_EQ(parse_hf({{"quantization", json::object()}}).algo_of("lm_head"), std::nullopt);
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

TEST(quantization_declaration, warns_once_for_each_kind_of_contradiction) {
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
  std::vector<std::string> sentences;
  for (problem const& p : report.problems()) {
    EXPECT_EQ(p.level, severity::warning);
    sentences.push_back(p.sentence);
  }
  EXPECT_EQ(
      sentences,
      (std::vector<std::string>{
          "h declares no quantisation for 1 linears that are stored as fp8_tensor, and the tensors "
          "decide: \"model.f\"",
          "h declares \"FP8\" for 2 linears that are stored as nvfp4, and the tensors decide: "
          "\"model.a\", \"model.b\"",
          "h declares \"INT4_AWQ\" for 1 linears that are stored as fp8_tensor, and the tensors "
          "decide: \"model.e\"",
          "h declares \"NVFP4\" for 1 linears that are stored as bf16, and the tensors decide: "
          "\"model.d\"",
          "h declares a quantisation for 1 modules that are not linears of this model: \"gone\""}));
}

}  // namespace
}  // namespace qwen38::checkpoint

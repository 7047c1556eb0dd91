// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inspect.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <utility>

#include "checkpoint/json_file.hpp"
#include "checkpoint/quantization_config.hpp"
#include "checkpoint/repository.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The document, or null after a report.
json read_or_report(std::filesystem::path const& path, diagnostics& report) {
  try {
    return read_json_object(path);
  } catch (error const& failure) {
    report.fail(failure.kind(), failure.what());
    return nullptr;
  }
}

// Runs `parse` and gives its result only if it reported no error.
template <class Parse>
auto if_sound(diagnostics& report, Parse&& parse) -> std::optional<decltype(parse())> {
  std::size_t const before = report.error_count();
  auto result = parse();
  if (report.error_count() != before) return std::nullopt;
  return result;
}

void inspect_declarations(json const& config_document, inspection& result, diagnostics& report) {
  for (quantization_declaration const& declaration :
       read_declarations(result.directory, config_document, report)) {
    if (result.weights) compare_declaration(declaration, result.weights->linears, report);
    if (!declaration.kv_cache_algo.empty()) result.kv_cache_algo = declaration.kv_cache_algo;
  }
}

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

void print_row(std::ostream& out, std::string_view name, std::string_view count,
               std::string_view bytes, std::string_view size) {
  char text[128];
  std::snprintf(text, sizeof text, "%-14.*s %8.*s %16.*s %9.*s\n", static_cast<int>(name.size()),
                name.data(), static_cast<int>(count.size()), count.data(),
                static_cast<int>(bytes.size()), bytes.data(), static_cast<int>(size.size()),
                size.data());
  out << text;
}

void print_total(std::ostream& out, std::string_view name, weight_total const& total) {
  print_row(out, name, grouped(total.count), grouped(total.bytes), gib(total.bytes));
}

std::size_t layers_of(model_config const& config, layer_kind kind) {
  return static_cast<std::size_t>(std::count(config.layers.begin(), config.layers.end(), kind));
}

void print_config(std::ostream& out, model_config const& c) {
  out << "model          " << c.num_hidden_layers << " layers ("
      << layers_of(c, layer_kind::linear_attention) << " linear, "
      << layers_of(c, layer_kind::full_attention) << " full attention), hidden " << c.hidden_size
      << ", MLP " << c.intermediate_size << ", vocabulary " << c.vocab_size
      << (c.tie_word_embeddings ? " (head tied)" : "") << "\n"
      << "attention      " << c.num_attention_heads << " query and " << c.num_kv_heads
      << " kv heads of " << c.head_dim << ", RoPE on " << c.rotary_dim << ", theta "
      << json(c.rope_theta).dump() << "\n"
      << "linear         " << c.linear_num_key_heads << " key heads of " << c.linear_key_head_dim
      << ", " << c.linear_num_value_heads << " value heads of " << c.linear_value_head_dim
      << ", convolution " << c.conv_kernel << "\n"
      << "context        " << c.max_position_embeddings << " positions, MTP layers "
      << c.mtp_num_hidden_layers << "\n";
}

void print_weights(std::ostream& out, inventory const& weights) {
  out << "\n";
  print_row(out, "class", "tensors", "bytes", "GiB");
  for (std::size_t i = 0; i < weight_group_count; ++i) {
    auto const group = static_cast<weight_group>(i);
    if (group == weight_group::unaccounted && weights.of(group).count == 0) continue;
    print_total(out, to_string(group), weights.of(group));
  }
  print_total(out, "total", weights.all);
  out << "\n";
  print_row(out, "linears", "modules", "bytes", "GiB");
  for (std::size_t i = 0; i < weights.classes.size(); ++i) {
    if (weights.classes[i].count != 0)
      print_total(out, to_string(static_cast<quant_class>(i)), weights.classes[i]);
  }
}

void print_ranks(std::ostream& out, std::vector<group_bytes> const& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    out << "\nrank " << rank << " of " << ranks.size() << "\n";
    for (std::size_t i = 0; i < weight_group_count; ++i) {
      std::uint64_t const bytes = ranks[rank][i];
      if (bytes != 0) {
        print_row(out, to_string(static_cast<weight_group>(i)), "", grouped(bytes), gib(bytes));
      }
    }
    std::uint64_t const all =
        std::accumulate(ranks[rank].begin(), ranks[rank].end(), std::uint64_t{0});
    print_row(out, "total", "", grouped(all), gib(all));
  }
}

void print_table(std::ostream& out, inspection const& result) {
  out << "checkpoint     " << result.directory.string() << "\n"
      << "size           " << result.files << " files, " << grouped(result.tensors) << " tensors, "
      << grouped(result.bytes) << " bytes, " << gib(result.bytes) << " GiB\n";
  if (result.config) print_config(out, *result.config);
  if (result.generation) {
    out << "stop ids      ";
    for (std::int64_t const id : result.generation->eos_token_ids) out << " " << id;
    out << "\n";
  }
  if (!result.kv_cache_algo.empty()) {
    out << "KV cache       declared as " << result.kv_cache_algo << "; kept in fp16 here\n";
  }
  if (result.weights) print_weights(out, *result.weights);
  print_ranks(out, result.ranks);
  out << "\n";
  for (problem const& p : result.problems) {
    out << (p.level == severity::error ? "error: " : "warning: ") << p.sentence << "\n";
  }
  auto const errors = std::count_if(result.problems.begin(), result.problems.end(),
                                    [](problem const& p) { return p.level == severity::error; });
  out << errors << " errors, " << result.problems.size() - static_cast<std::size_t>(errors)
      << " warnings\n";
}

ordered_json to_json(weight_total const& total, char const* count_name) {
  return {{count_name, total.count}, {"bytes", total.bytes}};
}

ordered_json to_json(model_config const& c) {
  return {{"num_hidden_layers", c.num_hidden_layers},
          {"linear_attention_layers", layers_of(c, layer_kind::linear_attention)},
          {"full_attention_layers", layers_of(c, layer_kind::full_attention)},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"vocab_size", c.vocab_size},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"rotary_dim", c.rotary_dim},
          {"rope_theta", c.rope_theta},
          {"rms_norm_eps", c.rms_norm_eps},
          {"linear_num_key_heads", c.linear_num_key_heads},
          {"linear_num_value_heads", c.linear_num_value_heads},
          {"linear_key_head_dim", c.linear_key_head_dim},
          {"linear_value_head_dim", c.linear_value_head_dim},
          {"linear_conv_kernel_dim", c.conv_kernel},
          {"max_position_embeddings", c.max_position_embeddings},
          {"mtp_num_hidden_layers", c.mtp_num_hidden_layers},
          {"tie_word_embeddings", c.tie_word_embeddings}};
}

ordered_json to_json(inspection const& result) {
  ordered_json object = {{"directory", result.directory.string()},
                         {"ok", result.ok()},
                         {"files", result.files},
                         {"tensors", result.tensors},
                         {"bytes", result.bytes},
                         {"config", nullptr},
                         {"eos_token_ids", nullptr},
                         {"kv_cache_algo", nullptr},
                         {"classes", nullptr},
                         {"linears", nullptr},
                         {"ranks", ordered_json::array()},
                         {"problems", ordered_json::array()}};
  if (result.config) object["config"] = to_json(*result.config);
  if (result.generation) object["eos_token_ids"] = result.generation->eos_token_ids;
  if (!result.kv_cache_algo.empty()) object["kv_cache_algo"] = result.kv_cache_algo;
  if (result.weights) {
    for (std::size_t i = 0; i < weight_group_count; ++i) {
      auto const group = static_cast<weight_group>(i);
      object["classes"][std::string(to_string(group))] =
          to_json(result.weights->of(group), "tensors");
    }
    for (std::size_t i = 0; i < result.weights->classes.size(); ++i) {
      auto const cls = static_cast<quant_class>(i);
      object["linears"][std::string(to_string(cls))] = to_json(result.weights->of(cls), "modules");
    }
  }
  for (group_bytes const& rank : result.ranks) {
    ordered_json bytes = ordered_json::object();
    for (std::size_t i = 0; i < weight_group_count; ++i) {
      bytes[std::string(to_string(static_cast<weight_group>(i)))] = rank[i];
    }
    object["ranks"].push_back({{"bytes", bytes}});
  }
  for (problem const& p : result.problems) {
    char const* const level = p.level == severity::error ? "error" : "warning";
    object["problems"].push_back({{"level", level}, {"sentence", p.sentence}});
  }
  return object;
}

}  // namespace

bool inspection::ok() const noexcept {
  return std::none_of(problems.begin(), problems.end(),
                      [](problem const& p) { return p.level == severity::error; });
}

inspection inspect_checkpoint(std::filesystem::path const& directory, open_mode mode) {
  diagnostics report(diagnostics::mode::collecting);
  inspection result;
  result.directory = directory;
  repository tensors(directory, mode, report);
  result.files = tensors.shard_count();
  for (tensor_view const* const tensor : tensors.tensors()) {
    ++result.tensors;
    result.bytes += tensor->byte_count;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(directory, ignored)) {  // else that one error says it all
    std::filesystem::path const config_path = directory / "config.json";
    std::filesystem::path const generation_path = directory / "generation_config.json";
    json const config = read_or_report(config_path, report);
    json const generation = read_or_report(generation_path, report);
    if (!config.is_null()) {
      result.config = if_sound(
          report, [&] { return parse_model_config(config, config_path.string(), report); });
    }
    if (!generation.is_null()) {
      std::int64_t const vocab_size = result.config ? result.config->vocab_size : max_vocab_size;
      result.generation = if_sound(report, [&] {
        return parse_generation_config(generation, generation_path.string(), vocab_size, report);
      });
    }
    if (result.config && result.tensors != 0) {
      result.weights = take_inventory(tensors, *result.config, report);
    }
    if (!config.is_null()) inspect_declarations(config, result, report);
  }
  result.problems = report.problems();
  return result;
}

int print_inspection(std::ostream& out, inspection const& result, bool as_json) {
  if (as_json) {
    out << to_json(result).dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  } else {
    print_table(out, result);
  }
  return result.ok() ? 0 : 2;
}

std::uint64_t verify_weights(repository& tensors, model_config const& config) {
  diagnostics strict(diagnostics::mode::strict);
  inventory const weights = take_inventory(tensors, config, strict);
  tensors.forget_claims();
  json const document = read_json_object(tensors.directory() / "config.json");
  for (quantization_declaration const& declaration :
       read_declarations(tensors.directory(), document, strict)) {
    compare_declaration(declaration, weights.linears, strict);
  }
  return weights.all.bytes;
}

}  // namespace qwen38::checkpoint

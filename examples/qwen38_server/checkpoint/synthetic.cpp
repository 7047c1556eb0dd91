// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/synthetic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "checkpoint/config.hpp"
#include "checkpoint/inventory.hpp"
#include "checkpoint/json_file.hpp"
#include "checkpoint/safetensors_writer.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view prefix = "model.language_model.";
constexpr std::size_t slack = std::size_t{1} << 16;  // places at which a tensor may begin

json config_27b() {
  return {{"vocab_size", 248320},
          {"hidden_size", 5120},
          {"intermediate_size", 17408},
          {"num_hidden_layers", 64},
          {"num_attention_heads", 24},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"linear_num_key_heads", 16},
          {"linear_num_value_heads", 48},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"max_position_embeddings", 262144}};
}

json config_tiny() {
  return {{"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 8},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"linear_num_key_heads", 4},
          {"linear_num_value_heads", 8},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"max_position_embeddings", 4096}};
}

json config_small() {
  return {{"vocab_size", 4096},
          {"hidden_size", 1024},
          {"intermediate_size", 3584},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"linear_num_key_heads", 8},
          {"linear_num_value_heads", 16},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"max_position_embeddings", 32768}};
}

/// nullopt where there is no such preset.
std::optional<json> config_of(std::string_view preset) {
  if (preset == "27b") return config_27b();
  if (preset == "small") return config_small();
  if (preset == "tiny") return config_tiny();
  return std::nullopt;
}

/// What all presets share.
json complete(json text) {
  text.update(
      {{"model_type", "qwen3_5_text"},
       {"hidden_act", "silu"},
       {"rms_norm_eps", 1e-6},
       {"attention_bias", false},
       {"attn_output_gate", true},
       {"output_gate_type", "swish"},
       {"full_attention_interval", 4},
       {"linear_conv_kernel_dim", 4},
       {"rope_parameters",
        {{"rope_type", "default"}, {"rope_theta", 10000000}, {"partial_rotary_factor", 0.25}}},
       {"mtp_num_hidden_layers", 1},
       {"tie_word_embeddings", false},
       {"dtype", "bfloat16"}});
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"model_type", "qwen3_5"},
          {"language_model_only", true},
          {"tie_word_embeddings", false},
          {"text_config", std::move(text)}};
}

/// SplitMix64: one generator for each pool, so that the values do not depend on who asks first.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (char const c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace

/// The arrays that tensors are pieces of, each as large as its largest tensor and the slack.
struct synthetic_checkpoint::pools {
  enum kind : std::size_t {
    e2m1_pairs,    ///< all 256 bytes; the root mean square of a code is 2.93
    block_scales,  ///< e4m3, 0.5 to 1.875
    e4m3_codes,    ///< both signs, 0.25 to 3.75: root mean square 1.7
    bf16_values,   ///< both signs, 2^-8 to 2^-4
    scalars,       ///< f32, as placed
    kinds
  };
  std::array<std::vector<std::byte>, kinds> bytes;
  std::array<std::size_t, kinds> wanted{};

  void fill() {
    for (std::size_t i = 0; i < scalars; ++i) {
      bytes[i].resize((wanted[i] + slack + 7) / 8 * 8);
      generator random(i + 1);
      for (std::size_t at = 0; at < bytes[i].size(); at += 8) {
        std::uint64_t const word = shaped(static_cast<kind>(i), random());
        std::memcpy(bytes[i].data() + at, &word, 8);
      }
    }
  }

  /// Eight bytes, or four halves, of a kind.
  static std::uint64_t shaped(kind of, std::uint64_t r) {
    constexpr std::uint64_t each = 0x0101010101010101U;
    switch (of) {
      case block_scales: return (r & each * 0x0f) + each * 0x30;  // exponent 6 or 7, any mantissa
      case e4m3_codes: return (r & each * 0x9f) + each * 0x28;    // exponent 5 to 8
      case bf16_values: {
        constexpr std::uint64_t halves = 0x0001000100010001U;
        // Sign and mantissa at random, exponent 119 to 122.
        return (r & halves * 0x81ff) + halves * (119U << 7);
      }
      default: return r;
    }
  }
};

/// Names the tensors of one preset and gives them their places.
struct synthetic_checkpoint::plan {
  struct piece {
    std::size_t tensor;
    pools::kind from;
  };
  synthetic_checkpoint& out;
  std::vector<piece> pieces;
  std::vector<std::pair<std::size_t, float>> scalars;

  void add(std::string name, storage_dtype dtype, std::vector<std::int64_t> shape,
           pools::kind from) {
    tensor_view tensor;
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.byte_count = static_cast<std::uint64_t>(dtype_bytes(dtype));
    for (std::int64_t const extent : tensor.shape) {
      tensor.byte_count *= static_cast<std::uint64_t>(extent);
    }
    std::size_t& wanted = out.pools_->wanted[from];
    wanted = std::max(wanted, static_cast<std::size_t>(tensor.byte_count));
    pieces.push_back({out.tensors_.size(), from});
    out.tensors_.push_back(std::move(tensor));
  }
  void add_scalar(std::string name, float value) {
    scalars.emplace_back(out.tensors_.size(), value);
    add(std::move(name), storage_dtype::f32, {}, pools::scalars);
  }

  /// Scales make the root mean square of a row of k weights 1 / sqrt(k).
  void add_linear(model_entry const& entry) {
    std::int64_t const n = entry.shape[0];
    std::int64_t const k = entry.shape[1];
    auto const gain = static_cast<float>(1.0 / std::sqrt(static_cast<double>(k)));
    switch (entry.group) {
      case weight_group::mlp:
      case weight_group::head:
        add(entry.name + ".weight", storage_dtype::u8, {n, k / 2}, pools::e2m1_pairs);
        add(entry.name + ".weight_scale", storage_dtype::f8_e4m3, {n, k / 16}, pools::block_scales);
        add_scalar(entry.name + ".weight_scale_2", gain / 3.2F);
        add_scalar(entry.name + ".input_scale", 0.01F);
        break;
      case weight_group::attention:
      case weight_group::gdn:
        add(entry.name + ".weight", storage_dtype::f8_e4m3, {n, k}, pools::e4m3_codes);
        add_scalar(entry.name + ".weight_scale", gain / 1.7F);
        add_scalar(entry.name + ".input_scale", 0.01F);
        break;
      default: add(entry.name + ".weight", storage_dtype::bf16, {n, k}, pools::bf16_values);
    }
  }

  /// Points every tensor at its bytes.
  void place() {
    out.pools_->fill();
    auto& numbers = out.pools_->bytes[pools::scalars];
    numbers.resize(scalars.size() * sizeof(float));
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      std::memcpy(numbers.data() + i * sizeof(float), &scalars[i].second, sizeof(float));
    }
    std::size_t next_scalar = 0;
    for (piece const& one : pieces) {
      tensor_view& tensor = out.tensors_[one.tensor];
      std::size_t const at = one.from == pools::scalars ? next_scalar++ * sizeof(float)
                                                        : hash_of(tensor.name) % slack / 8 * 8;
      tensor.bytes = std::span(out.pools_->bytes[one.from])
                         .subspan(at, static_cast<std::size_t>(tensor.byte_count));
    }
  }
};

synthetic_checkpoint::synthetic_checkpoint(std::string_view preset, open_mode mode)
    : pools_(std::make_unique<pools>()) {
  std::optional<json> shape_of_preset = config_of(preset);
  if (!shape_of_preset) {
    throw error(
        error_kind::invalid_argument,
        "there is no synthetic model \"" + std::string(preset) + "\": expected 27b, small or tiny");
  }
  json config = complete(std::move(*shape_of_preset));
  diagnostics strict(diagnostics::mode::strict);
  model_config const shape = parse_model_config(config, "synthetic config.json", strict);

  plan made{*this, {}, {}};
  json layers = json::object();
  for (model_entry const& entry : list_model(shape, std::string(prefix))) {
    if (!entry.is_linear) {
      made.add(entry.name, storage_dtype::bf16, entry.shape, pools::bf16_values);
      continue;
    }
    made.add_linear(entry);
    if (entry.group == weight_group::mlp || entry.group == weight_group::head) {
      layers[entry.name] = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
    } else if (entry.group == weight_group::attention || entry.group == weight_group::gdn) {
      layers[entry.name] = {{"quant_algo", "FP8"}};
    }
  }
  if (mode == open_mode::full) made.place();
  json const excluded = {"mtp*", "*linear_attn.in_proj_a", "*linear_attn.in_proj_b"};
  config["quantization_config"] = {{"quant_method", "modelopt"},
                                   {"quant_algo", "MIXED_PRECISION"},
                                   {"ignore", excluded},
                                   {"quantized_layers", layers}};
  config_ = std::make_unique<json>(std::move(config));
  quantization_ = std::make_unique<json>(json{{"producer", {{"name", "modelopt"}}},
                                              {"quantization",
                                               {{"quant_algo", "MIXED_PRECISION"},
                                                {"exclude_modules", excluded},
                                                {"quantized_layers", layers}}}});
}

synthetic_checkpoint::~synthetic_checkpoint() = default;

std::uint64_t synthetic_checkpoint::byte_count() const noexcept {
  std::uint64_t total = 0;
  for (tensor_view const& tensor : tensors_) total += tensor.byte_count;
  return total;
}

void synthetic_checkpoint::write_documents(std::filesystem::path const& directory,
                                           std::string const& tokenizer_json) const {
  json const vocabulary = json::parse(tokenizer_json);
  json stops = json::array();
  for (json const& token : vocabulary.at("added_tokens")) {
    std::string const content = token.at("content").get<std::string>();
    if (content == "<|im_end|>" || content == "<|endoftext|>") stops.push_back(token.at("id"));
  }
  write_json(directory / "config.json", *config_);
  write_json(directory / "generation_config.json", {{"do_sample", false}, {"eos_token_id", stops}});
  write_json(directory / "hf_quant_config.json", *quantization_);
  write_json(directory / "tokenizer.json", vocabulary);
}

void synthetic_checkpoint::write(
    std::filesystem::path const& directory, std::string const& tokenizer_json,
    std::uint64_t shard_bytes,
    std::function<void(std::uint64_t, std::uint64_t)> const& on_progress) const {
  if (std::filesystem::exists(directory)) {
    throw error(error_kind::invalid_argument,
                directory.string() + " is there already: expected a new directory");
  }
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) throw error(error_kind::io, directory.string() + ": " + failed.message());

  std::vector<std::vector<tensor_view const*>> shards(1);
  std::uint64_t filled = 0;
  for (tensor_view const& tensor : tensors_) {
    if (!shards.back().empty() && filled + tensor.byte_count > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(&tensor);
    filled += tensor.byte_count;
  }
  json weight_map = json::object();
  std::uint64_t done = 0;
  std::uint64_t const total = byte_count();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    std::vector<tensor_info> infos;
    for (tensor_view const* one : shards[i]) infos.push_back({one->name, one->dtype, one->shape});
    safetensors_writer writer(directory / name, std::move(infos), {{"format", "pt"}});
    for (tensor_view const* one : shards[i]) {
      writer.append(one->name, one->bytes);
      weight_map[one->name] = name;
      if (on_progress) on_progress(done += one->byte_count, total);
    }
    writer.finish();
  }
  write_json(directory / "model.safetensors.index.json",
             {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}});
  write_documents(directory, tokenizer_json);
}

}  // namespace qwen38::checkpoint

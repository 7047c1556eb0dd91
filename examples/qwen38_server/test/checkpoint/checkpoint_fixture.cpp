// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_fixture.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <qpn/dtype.hpp>
#include <span>
#include <system_error>

namespace qwen38::checkpoint::test {
namespace {

using nlohmann::json;

// The extents of the published tensor table. They are stated one by one, not derived from each
// other as the code under test does.
struct extents {
  std::int64_t layers, vocab, hidden, mlp;
  std::int64_t q_rows, kv_rows, o_columns, head_dim;
  std::int64_t qkv_rows, z_rows, value_heads, value_dim;
};
constexpr extents full_extents{64,   248320, 5120,  17408, 12288, 1024,
                               6144, 256,    10240, 6144,  48,    128};
constexpr extents small_extents{8, 96, 64, 96, 256, 64, 128, 32, 256, 128, 4, 32};

class builder {
 public:
  builder(checkpoint_fixture& out, extents const& e) : out_(out), e_(e) {}

  void add_text_model(std::string const& prefix) {
    out_.add(prefix + "embed_tokens.weight", storage_dtype::bf16, {e_.vocab, e_.hidden});
    for (std::int64_t i = 0; i < e_.layers; ++i) {
      std::string const base = prefix + "layers." + std::to_string(i) + ".";
      add_layer_norms(base);
      out_.add_nvfp4(base + "mlp.gate_proj", e_.mlp, e_.hidden);
      out_.add_nvfp4(base + "mlp.up_proj", e_.mlp, e_.hidden);
      out_.add_nvfp4(base + "mlp.down_proj", e_.hidden, e_.mlp);
      if (i % 4 == 3) {
        out_.add_fp8(base + "self_attn.q_proj", e_.q_rows, e_.hidden);
        out_.add_fp8(base + "self_attn.k_proj", e_.kv_rows, e_.hidden);
        out_.add_fp8(base + "self_attn.v_proj", e_.kv_rows, e_.hidden);
        out_.add_fp8(base + "self_attn.o_proj", e_.hidden, e_.o_columns);
        add_head_norms(base);
      } else {
        add_gdn(base + "linear_attn.");
      }
    }
    out_.add(prefix + "norm.weight", storage_dtype::bf16, {e_.hidden});
    out_.add_nvfp4("lm_head", e_.vocab, e_.hidden);
  }

  void add_mtp() {
    std::string const base = "mtp.layers.0.";
    out_.add("mtp.fc.weight", storage_dtype::bf16, {e_.hidden, 2 * e_.hidden});
    out_.add("mtp.pre_fc_norm_embedding.weight", storage_dtype::bf16, {e_.hidden});
    out_.add("mtp.pre_fc_norm_hidden.weight", storage_dtype::bf16, {e_.hidden});
    out_.add("mtp.norm.weight", storage_dtype::bf16, {e_.hidden});
    add_layer_norms(base);
    add_head_norms(base);
    out_.add(base + "self_attn.q_proj.weight", storage_dtype::bf16, {e_.q_rows, e_.hidden});
    out_.add(base + "self_attn.k_proj.weight", storage_dtype::bf16, {e_.kv_rows, e_.hidden});
    out_.add(base + "self_attn.v_proj.weight", storage_dtype::bf16, {e_.kv_rows, e_.hidden});
    out_.add(base + "self_attn.o_proj.weight", storage_dtype::bf16, {e_.hidden, e_.o_columns});
    out_.add(base + "mlp.gate_proj.weight", storage_dtype::bf16, {e_.mlp, e_.hidden});
    out_.add(base + "mlp.up_proj.weight", storage_dtype::bf16, {e_.mlp, e_.hidden});
    out_.add(base + "mlp.down_proj.weight", storage_dtype::bf16, {e_.hidden, e_.mlp});
  }

 private:
  void add_layer_norms(std::string const& base) {
    out_.add(base + "input_layernorm.weight", storage_dtype::bf16, {e_.hidden});
    out_.add(base + "post_attention_layernorm.weight", storage_dtype::bf16, {e_.hidden});
  }
  void add_head_norms(std::string const& base) {
    out_.add(base + "self_attn.q_norm.weight", storage_dtype::bf16, {e_.head_dim});
    out_.add(base + "self_attn.k_norm.weight", storage_dtype::bf16, {e_.head_dim});
  }
  void add_gdn(std::string const& base) {
    out_.add_fp8(base + "in_proj_qkv", e_.qkv_rows, e_.hidden);
    out_.add_fp8(base + "in_proj_z", e_.z_rows, e_.hidden);
    out_.add_fp8(base + "out_proj", e_.hidden, e_.z_rows);
    out_.add(base + "in_proj_b.weight", storage_dtype::bf16, {e_.value_heads, e_.hidden});
    out_.add(base + "in_proj_a.weight", storage_dtype::bf16, {e_.value_heads, e_.hidden});
    out_.add(base + "conv1d.weight", storage_dtype::bf16, {e_.qkv_rows, 1, 4});
    out_.add(base + "A_log", storage_dtype::bf16, {e_.value_heads});
    out_.add(base + "dt_bias", storage_dtype::bf16, {e_.value_heads});
    out_.add(base + "norm.weight", storage_dtype::bf16, {e_.value_dim});
  }

  checkpoint_fixture& out_;
  extents const& e_;
};

void add_vision(checkpoint_fixture& out) {
  std::string const base = "model.visual.";
  auto const pair = [&](std::string const& name, std::vector<std::int64_t> const& weight) {
    out.add(base + name + ".weight", storage_dtype::bf16, weight);
    out.add(base + name + ".bias", storage_dtype::bf16, {weight[0]});
  };
  pair("patch_embed.proj", {1152, 3, 2, 16, 16});
  out.add(base + "pos_embed.weight", storage_dtype::bf16, {2304, 1152});
  for (int i = 0; i < 27; ++i) {
    std::string const block = "blocks." + std::to_string(i) + ".";
    pair(block + "attn.qkv", {3456, 1152});
    pair(block + "attn.proj", {1152, 1152});
    pair(block + "mlp.linear_fc1", {4304, 1152});
    pair(block + "mlp.linear_fc2", {1152, 4304});
    pair(block + "norm1", {1152});
    pair(block + "norm2", {1152});
  }
  pair("merger.norm", {1152});
  pair("merger.linear_fc1", {4608, 4608});
  pair("merger.linear_fc2", {5120, 4608});
}

// Both documents declare what the tensors are, as ModelOpt writes it.
void add_declarations(checkpoint_fixture& out) {
  json layers = json::object();
  for (auto const& [name, tensor] : out.tensors) {
    std::string const suffix = ".weight_scale";
    if (!name.ends_with(suffix)) continue;
    std::string const module = name.substr(0, name.size() - suffix.size());
    bool const is_nvfp4 = out.tensors.contains(module + ".weight_scale_2");
    layers[module] =
        is_nvfp4 ? json{{"quant_algo", "NVFP4"}, {"group_size", 16}} : json{{"quant_algo", "FP8"}};
  }
  json const excluded = {"model.visual*", "mtp*", "*linear_attn.in_proj_a",
                         "*linear_attn.in_proj_b"};
  out.hf_quant_config = {{"producer", {{"name", "modelopt"}, {"version", "0.45.0"}}},
                         {"quantization",
                          {{"quant_algo", "MIXED_PRECISION"},
                           {"kv_cache_quant_algo", "FP8"},
                           {"exclude_modules", excluded},
                           {"quantized_layers", layers}}}};
  out.config["quantization_config"] = {
      {"quant_method", "modelopt"},
      {"quant_algo", "MIXED_PRECISION"},
      {"ignore", excluded},
      {"quantized_layers", layers},
      {"kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}, {"dynamic", false}}}};
}

json full_config() {
  json layer_types = json::array();
  for (int i = 0; i < 64; ++i)
    layer_types.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  json const text = {{"model_type", "qwen3_5_text"},
                     {"vocab_size", 248320},
                     {"hidden_size", 5120},
                     {"intermediate_size", 17408},
                     {"num_hidden_layers", 64},
                     {"num_attention_heads", 24},
                     {"num_key_value_heads", 4},
                     {"head_dim", 256},
                     {"hidden_act", "silu"},
                     {"rms_norm_eps", 1e-6},
                     {"attention_bias", false},
                     {"attention_dropout", 0.0},
                     {"attn_output_gate", true},
                     {"output_gate_type", "swish"},
                     {"full_attention_interval", 4},
                     {"layer_types", layer_types},
                     {"linear_num_key_heads", 16},
                     {"linear_num_value_heads", 48},
                     {"linear_key_head_dim", 128},
                     {"linear_value_head_dim", 128},
                     {"linear_conv_kernel_dim", 4},
                     {"mamba_ssm_dtype", "float32"},
                     {"max_position_embeddings", 262144},
                     {"partial_rotary_factor", 0.25},
                     {"rope_parameters",
                      {{"rope_type", "default"},
                       {"rope_theta", 10000000},
                       {"partial_rotary_factor", 0.25},
                       {"mrope_interleaved", true},
                       {"mrope_section", {11, 11, 10}}}},
                     {"mtp_num_hidden_layers", 1},
                     {"mtp_use_dedicated_embeddings", false},
                     {"tie_word_embeddings", false},
                     {"bos_token_id", 248044},
                     {"eos_token_id", 248044},
                     {"pad_token_id", nullptr},
                     {"dtype", "bfloat16"}};
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"model_type", "qwen3_5"},
          {"tie_word_embeddings", false},
          {"image_token_id", 248056},
          {"text_config", text},
          {"vision_config", {{"depth", 27}, {"hidden_size", 1152}}}};
}

}  // namespace

temp_directory::temp_directory() {
  std::string pattern = testing::TempDir() + "qwen38_checkpoint_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr)
    throw std::runtime_error("mkdtemp failed for " + pattern);
  path_ = pattern;
}

temp_directory::~temp_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(std::filesystem::path const& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string safetensors_image(std::string const& header, std::size_t data_bytes) {
  std::string image;
  for (unsigned i = 0; i < 8; ++i) {
    image.push_back(static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff));
  }
  return image + header + std::string(data_bytes, '\0');
}

void checkpoint_fixture::add(std::string const& name, storage_dtype dtype,
                             std::vector<std::int64_t> shape) {
  tensors[name] = {dtype, std::move(shape), {}};
  shard_of[name] = "model-00001-of-00001.safetensors";
}

void checkpoint_fixture::add_f32(std::string const& name, float value) {
  add(name, storage_dtype::f32, {});
  tensors[name].bytes.resize(sizeof value);
  std::memcpy(tensors[name].bytes.data(), &value, sizeof value);
}

void checkpoint_fixture::add_nvfp4(std::string const& module, std::int64_t n, std::int64_t k) {
  add(module + ".weight", storage_dtype::u8, {n, k / 2});
  add(module + ".weight_scale", storage_dtype::f8_e4m3, {n, k / 16});
  add_f32(module + ".weight_scale_2", 0x1p-10f);
  add_f32(module + ".input_scale", 0x1p-8f);
}

void checkpoint_fixture::add_fp8(std::string const& module, std::int64_t n, std::int64_t k) {
  add(module + ".weight", storage_dtype::f8_e4m3, {n, k});
  add_f32(module + ".weight_scale", 0x1p-9f);
  add_f32(module + ".input_scale", 0x1p-8f);
}

void checkpoint_fixture::erase(std::string const& name) {
  ASSERT_EQ(tensors.erase(name), 1u) << name;
  shard_of.erase(name);
}

void checkpoint_fixture::write(std::filesystem::path const& directory) const {
  std::map<std::string, std::vector<tensor_info>> shards;
  json weight_map = json::object();
  std::uint64_t total = 0;
  for (auto const& [name, tensor] : tensors) {
    shards[shard_of.at(name)].push_back({name, tensor.dtype, tensor.shape});
    weight_map[name] = shard_of.at(name);
    auto bytes = static_cast<std::uint64_t>(dtype_bytes(tensor.dtype));
    for (std::int64_t const extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
    total += bytes;
  }
  for (auto const& [file, infos] : shards) {
    safetensors_writer writer(directory / file, infos, {{"format", "pt"}});
    for (tensor_info const& info : infos) {
      std::vector<std::byte> const& bytes = tensors.at(info.name).bytes;
      if (bytes.empty()) {
        writer.leave_zero(info.name);
      } else {
        writer.append(info.name, bytes);
      }
    }
    writer.finish();
  }
  json const index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file(directory / "model.safetensors.index.json", index.dump());
  if (!config.is_null()) write_file(directory / "config.json", config.dump());
  if (!generation.is_null()) write_file(directory / "generation_config.json", generation.dump());
  if (!hf_quant_config.is_null())
    write_file(directory / "hf_quant_config.json", hf_quant_config.dump());
}

void checkpoint_fixture::write_headers_only(std::filesystem::path const& directory) const {
  checkpoint_fixture empty = *this;
  empty.write(directory);
  for (auto const& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() != ".safetensors") continue;
    std::ifstream in(file.path(), std::ios::binary);
    std::uint64_t header_bytes = 0;  // little-endian, as every machine these tests run on
    in.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::filesystem::resize_file(file.path(), 8 + header_bytes);
  }
}

checkpoint_fixture make_27b() {
  checkpoint_fixture out;
  builder build(out, full_extents);
  build.add_text_model("model.language_model.");
  build.add_mtp();
  add_vision(out);
  for (auto& [name, shard] : out.shard_of) {
    bool const is_layer = name.starts_with("model.language_model.layers.");
    int const layer = is_layer ? std::stoi(name.substr(28)) : 64;
    shard = "model-0000" + std::to_string(1 + layer / 32) + "-of-00003.safetensors";
  }
  out.config = full_config();
  out.generation = {
      {"bos_token_id", 248044}, {"do_sample", true},  {"eos_token_id", {248046, 248044}},
      {"pad_token_id", 248044}, {"temperature", 1.0}, {"top_k", 20},
      {"top_p", 0.95}};
  add_declarations(out);
  return out;
}

checkpoint_fixture make_small() {
  checkpoint_fixture out;
  builder build(out, small_extents);
  build.add_text_model("model.language_model.");
  build.add_mtp();
  out.config = full_config();
  json& text = out.config["text_config"];
  text["vocab_size"] = 96;
  text["hidden_size"] = 64;
  text["intermediate_size"] = 96;
  text["num_hidden_layers"] = 8;
  text.erase("layer_types");
  text["num_attention_heads"] = 4;
  text["num_key_value_heads"] = 2;
  text["head_dim"] = 32;
  text["rope_parameters"]["mrope_section"] = {2, 1, 1};
  text["linear_num_key_heads"] = 2;
  text["linear_num_value_heads"] = 4;
  text["linear_key_head_dim"] = 32;
  text["linear_value_head_dim"] = 32;
  out.generation = {{"eos_token_id", {94, 95}}};
  add_declarations(out);
  return out;
}

checkpoint_fixture make_small_dense() {
  checkpoint_fixture const small = make_small();
  checkpoint_fixture out;
  out.config = small.config;
  out.config.erase("quantization_config");
  out.generation = small.generation;
  for (auto const& [name, tensor] : small.tensors) {
    if (name.ends_with("_scale") || name.ends_with("_scale_2")) continue;
    std::vector<std::int64_t> shape = tensor.shape;
    if (tensor.dtype == storage_dtype::u8) shape.back() *= 2;
    out.add(name, storage_dtype::bf16, shape);
  }
  return out;
}

namespace {

// The modules that the published checkpoints quantise.
bool is_quantised(std::string const& name) {
  if (!name.ends_with(".weight") || name.starts_with("mtp.")) return false;
  if (name.find("in_proj_a.") != std::string::npos || name.find("in_proj_b.") != std::string::npos)
    return false;
  return name.find("_proj") != std::string::npos || name == "lm_head.weight";
}

std::vector<std::pair<std::string, std::vector<std::int64_t>>> quantised_modules(
    checkpoint_fixture const& f) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> modules;
  for (auto const& [name, tensor] : f.tensors) {
    if (is_quantised(name)) modules.emplace_back(name.substr(0, name.size() - 7), tensor.shape);
  }
  return modules;
}

constexpr std::uint16_t bf16_small = 0x3c00;  // 2^-7

}  // namespace

checkpoint_fixture make_small_compressed() {
  checkpoint_fixture out = make_small_dense();
  for (auto const& [module, shape] : quantised_modules(out)) {
    bool const is_mlp = module.find(".mlp.") != std::string::npos;
    bool const is_last = module.find("layers.6.") != std::string::npos ||
                         module.find("layers.7.") != std::string::npos;
    std::int64_t const n = shape[0];
    std::int64_t const k = shape[1];
    if (is_mlp && !is_last) {
      out.erase(module + ".weight");
      out.add(module + ".weight_packed", storage_dtype::u8, {n, k / 2});
      out.add(module + ".weight_scale", storage_dtype::f8_e4m3, {n, k / 16});
      out.add_filled(module + ".weight_global_scale", storage_dtype::f32, {1}, 1024.0f);
      out.add_filled(module + ".input_global_scale", storage_dtype::f32, {1}, 256.0f);
    } else {
      out.add(module + ".weight", storage_dtype::f8_e4m3, {n, k});
      out.add_filled(module + ".weight_scale", storage_dtype::bf16, {n, 1}, bf16_small);
    }
  }
  auto const weights = [](int bits, std::string const& strategy, json const& group_size) {
    return json{{"num_bits", bits},  {"type", "float"},  {"strategy", strategy},
                {"symmetric", true}, {"dynamic", false}, {"group_size", group_size}};
  };
  json const eight = {
      {"format", "float-quantized"},
      {"weights", weights(8, "channel", nullptr)},
      {"targets",
       {"re:.*self_attn\\.(q|k|v|o)_proj$", "re:.*linear_attn\\.(in_proj_qkv|in_proj_z|out_proj)$",
        "re:.*layers\\.(6|7)\\.mlp\\..*", "lm_head"}}};
  json const four = {{"format", "nvfp4-pack-quantized"},
                     {"weights", weights(4, "tensor_group", 16)},
                     {"targets", {"re:.*mlp\\.(gate|up|down)_proj$"}}};
  out.config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "mixed-precision"},
      {"config_groups", {{"group_0", eight}, {"group_1", four}}},
      {"ignore", {"re:.*in_proj_[ab]$", "re:^mtp.*"}},
      {"kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}, {"dynamic", false}}}};
  return out;
}

checkpoint_fixture make_small_blocks() {
  checkpoint_fixture out = make_small_dense();
  json kept = {"lm_head", "mtp"};
  for (auto const& [module, shape] : quantised_modules(out)) {
    if (module == "lm_head") continue;
    out.add(module + ".weight", storage_dtype::f8_e4m3, shape);
    out.add_filled(module + ".weight_scale_inv", storage_dtype::f32,
                   {(shape[0] + 127) / 128, (shape[1] + 127) / 128}, 1.0f);
  }
  for (int i = 0; i < 8; ++i) {
    std::string const mixer = "model.language_model.layers." + std::to_string(i) + ".linear_attn.";
    kept.push_back(mixer + "in_proj_a");
    kept.push_back(mixer + "in_proj_b");
  }
  out.config["quantization_config"] = {{"quant_method", "fp8"},
                                       {"fmt", "e4m3"},
                                       {"activation_scheme", "dynamic"},
                                       {"weight_block_size", {128, 128}},
                                       {"modules_to_not_convert", kept}};
  return out;
}

checkpoint_fixture read_checkpoint(std::filesystem::path const& directory) {
  repository const tensors(directory);
  checkpoint_fixture f;
  for (tensor_view const* const tensor : tensors.tensors()) {
    f.add(tensor->name, tensor->dtype, tensor->shape);
    f.tensors[tensor->name].bytes.assign(tensor->bytes.begin(), tensor->bytes.end());
  }
  std::ifstream config(directory / "config.json");
  f.config = json::parse(config);
  f.config.erase("quantization_config");
  std::ifstream generation(directory / "generation_config.json");
  f.generation = json::parse(generation);
  return f;
}

std::vector<float> held_values(linear_view const& linear) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < linear.n; ++row) {
    for (std::int64_t column = 0; column < linear.k; ++column) {
      auto const at = static_cast<std::size_t>(row * linear.k + column);
      auto const byte = [&](std::size_t i) {
        return std::to_integer<std::uint8_t>(linear.codes[i]);
      };
      if (linear.format == qpn::format_id::nvfp4) {
        auto const code = static_cast<std::uint8_t>(byte(at / 2) >> (column % 2 * 4) & 0xf);
        float const block =
            qpn::decode_e4m3(std::to_integer<std::uint8_t>(linear.block_scales[at / 16]));
        values.push_back(qpn::decode_e2m1(code) * block * linear.scale);
      } else if (linear.format == qpn::format_id::fp8) {
        float scale = linear.scale;
        if (linear.scales == qpn::scale_mode::channel) {
          scale = linear.channel_scales.at(static_cast<std::size_t>(row));
        } else if (linear.scales == qpn::scale_mode::block) {
          std::int64_t const block = row / 128 * ((linear.k + 127) / 128) + column / 128;
          scale = linear.scale_blocks.at(static_cast<std::size_t>(block));
        }
        values.push_back(qpn::decode_e4m3(byte(at)) * scale);
      } else {
        auto const code = static_cast<std::uint16_t>(byte(2 * at) | byte(2 * at + 1) << 8);
        values.push_back(linear.dense_type == qpn::dtype::bf16 ? qpn::decode_bf16(code)
                                                               : qpn::decode_f16(code));
      }
    }
  }
  return values;
}

}  // namespace qwen38::checkpoint::test

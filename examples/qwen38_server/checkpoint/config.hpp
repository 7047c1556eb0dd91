// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/diagnostics.hpp"

namespace qwen38::checkpoint {

/// Rows that a vocabulary may have at most.
inline constexpr std::int64_t max_vocab_size = std::int64_t{1} << 24;

/// The mixer of a decoder layer: gated delta rule ("linear") or softmax attention ("full").
enum class layer_kind : std::uint8_t { linear_attention, full_attention };

/// The shape of a Qwen3.5 / 3.6 / 3.8 dense text model, as config.json states it. Every value was
/// checked by parse_model_config, so products of a few extents fit in 64 bits.
struct model_config {
  std::int64_t vocab_size = 0;  ///< rows of embedding and head; more than the tokenizer's ids
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::vector<layer_kind> layers;  ///< [num_hidden_layers]

  std::int64_t num_attention_heads = 0;  ///< a multiple of num_kv_heads
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;  ///< leading dims of a head that RoPE turns; even, <= head_dim
  double rope_theta = 0;
  double rms_norm_eps = 0;

  std::int64_t linear_num_key_heads = 0;
  std::int64_t linear_num_value_heads = 0;  ///< a multiple of linear_num_key_heads
  std::int64_t linear_key_head_dim = 0;
  std::int64_t linear_value_head_dim = 0;
  std::int64_t conv_kernel = 0;  ///< taps of the causal convolution, the current token included

  std::int64_t max_position_embeddings = 0;
  std::int64_t mtp_num_hidden_layers = 0;  ///< 0 or 1
  bool tie_word_embeddings =
      false;  ///< true: the head is the embedding, there is no lm_head tensor

  /// q_proj: per head first its query rows, then its gate rows.
  [[nodiscard]] std::int64_t q_proj_rows() const { return 2 * num_attention_heads * head_dim; }
  [[nodiscard]] std::int64_t attention_dim() const { return num_attention_heads * head_dim; }
  [[nodiscard]] std::int64_t kv_dim() const { return num_kv_heads * head_dim; }
  [[nodiscard]] std::int64_t linear_key_dim() const {
    return linear_num_key_heads * linear_key_head_dim;
  }
  [[nodiscard]] std::int64_t linear_value_dim() const {
    return linear_num_value_heads * linear_value_head_dim;
  }
  /// in_proj_qkv rows and conv channels: q, k, v.
  [[nodiscard]] std::int64_t linear_qkv_dim() const {
    return 2 * linear_key_dim() + linear_value_dim();
  }
};

/// Reads config.json's document. Text fields may stand in text_config or, in a text-only export, at
/// top level; rope_theta and partial_rotary_factor in rope_parameters or beside it (if in both,
/// they must agree); the layer pattern is layer_types or, without it, full_attention_interval. What
/// the server would compute wrongly is refused by name: biases, another activation, no output gate,
/// scaled RoPE, another model type, experts. Each wrong or missing field is one sentence that gives
/// its JSON path after `label`.
[[nodiscard]] model_config parse_model_config(nlohmann::json const& document,
                                              std::string const& label, diagnostics& report);

/// @throws qwen38::error for `directory`/config.json.
[[nodiscard]] model_config load_model_config(std::filesystem::path const& directory);

/// How to sample and when to stop, as generation_config.json states it. What the file leaves out is
/// off: greedy, temperature 1, top_k 0, top_p 1, min_p 0, no penalties.
struct generation_config {
  std::vector<std::int64_t> eos_token_ids;  ///< never empty; the list in config.json is not enough
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  bool do_sample = false;  ///< false: greedy unless the request says otherwise
  double temperature = 1;
  std::int64_t top_k = 0;  ///< 0: off
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
};

/// Ids must be below `vocab_size`.
[[nodiscard]] generation_config parse_generation_config(nlohmann::json const& document,
                                                        std::string const& label,
                                                        std::int64_t vocab_size,
                                                        diagnostics& report);

/// @throws qwen38::error for `directory`/generation_config.json.
[[nodiscard]] generation_config load_generation_config(std::filesystem::path const& directory,
                                                       std::int64_t vocab_size);

}  // namespace qwen38::checkpoint

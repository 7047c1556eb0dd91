// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <qpn/dtype.hpp>
#include <qpn/packed_weight.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/config.hpp"
#include "checkpoint/linear.hpp"
#include "checkpoint/repository.hpp"
#include "ops/backend.hpp"
#include "parallel/shard.hpp"

namespace qwen38::model {

/// Of what a layer's attention reads, [q_gate | k | v], where q_gate has query, then gate for each
/// head.
struct attention_weights {
  /// All three: one product, where they are of one class; else null.
  std::unique_ptr<ops::linear> q_gate_kv;
  std::unique_ptr<ops::linear> q_gate;  ///< null where q_gate_kv is not
  std::unique_ptr<ops::linear> kv;      ///< the same
  std::unique_ptr<ops::linear> out;
  std::unique_ptr<ops::constants> q_norm;
  std::unique_ptr<ops::constants> k_norm;
};

struct gdn_layer_weights {
  std::unique_ptr<ops::linear> qkvz;  ///< [q | k | v | z]
  std::unique_ptr<ops::linear> ba;    ///< [b | a]
  std::unique_ptr<ops::linear> out;
  std::unique_ptr<ops::constants> conv;
  std::unique_ptr<ops::constants> a_log;
  std::unique_ptr<ops::constants> dt_bias;
  std::unique_ptr<ops::constants> norm;

  [[nodiscard]] ops::gdn_weights view() const {
    return {conv.get(), a_log.get(), dt_bias.get(), norm.get()};
  }
};

struct mlp_weights {
  std::unique_ptr<ops::linear> gate_up;
  std::unique_ptr<ops::linear> down;
};

struct layer_weights {
  std::unique_ptr<ops::constants> input_norm;
  std::variant<gdn_layer_weights, attention_weights> mixer;
  std::unique_ptr<ops::constants> post_norm;
  mlp_weights mlp;
};

struct mtp_weights {
  std::unique_ptr<ops::constants> embedding_norm;
  std::unique_ptr<ops::constants> hidden_norm;
  std::unique_ptr<ops::linear> fc;  ///< [hidden, 2 hidden], embedding half first
  layer_weights layer;              ///< full attention
  std::unique_ptr<ops::constants> norm;
};

/// One packed linear of a rank: what the checkpoint stores and what is held of it.
struct linear_record {
  std::string name;         ///< of its first module
  std::size_t modules = 1;  ///< that were fused into it
  checkpoint::quant_class stored = checkpoint::quant_class::bf16;
  qpn::packed_layout held;
  /// Of the first linear of each layout: its self-check's largest error, as a part of what rounding
  /// explains.
  std::optional<double> checked;
};

struct model_weights {
  std::unique_ptr<ops::embedding> embedding;  ///< [vocab_size, hidden]
  std::vector<layer_weights> layers;
  std::unique_ptr<ops::constants> norm;
  std::unique_ptr<ops::linear> head;
  std::optional<mtp_weights> mtp;
  std::size_t packed_bytes =
      0;  ///< of all linears, and of the embedding where the backend copies it
  std::vector<linear_record> linears;  ///< all of the above, as they were packed
};

/// Told of bytes of the checkpoint: (done, all, the module at hand).
using load_progress = std::function<void(std::uint64_t, std::uint64_t, std::string_view)>;

struct load_options {
  bool self_check = false;  ///< the first linear of each layout must pass check_product()
  std::int64_t most_rows = qpn::gemm_max_m;  ///< of a product, but for the head's
  load_progress on_progress = nullptr;
};

/// Packs what `rank` of the plan holds of the checkpoint for `backend`, tensor by tensor: beside
/// what the backend holds, host memory is that of the largest linear. A tensor that is neither used
/// nor on the list of ignored names is an error. `files` must outlive the result (the embedding may
/// stay in its mapping); with headers alone, all weights are 0 or nothing, for a backend on a
/// device that only counts.
model_weights load_weights(checkpoint::repository& files, checkpoint::model_config const& config,
                           parallel::shard_plan const& plan, int rank, ops::backend& backend,
                           load_options const& options);

}  // namespace qwen38::model

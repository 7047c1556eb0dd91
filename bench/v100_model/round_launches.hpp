// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rows.hpp"

// What one rank launches in a round of examples/qwen38_server on sm_70, and what each launch asks
// of the machine. A test of the server counts the launches of the real one.

namespace qpn::bench::v100 {

/// What a rank has of a model of Qwen3.8's architecture with an MTP layer.
struct rank_model {
  int ranks = 1;
  std::int64_t hidden = 0;
  std::int64_t gdn_layers = 0;
  std::int64_t full_layers = 0;
  std::int64_t heads = 0;  ///< of queries
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t key_heads = 0;    ///< of GDN
  std::int64_t value_heads = 0;  ///< of GDN
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_taps = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;

  [[nodiscard]] std::int64_t value_channels() const { return value_heads * value_dim; }
  /// q | k | v, which pass the convolution.
  [[nodiscard]] std::int64_t conv_channels() const {
    return 2 * key_heads * key_dim + value_channels();
  }
};

/// Qwen3.8-27B on one rank of four.
[[nodiscard]] rank_model qwen38_27b_at_tp4() noexcept;

/// One lane's round.
struct round_shape {
  int drafts = 0;            ///< k
  std::int64_t settled = 1;  ///< rows that the MTP layer runs over before its first draft
  std::int64_t context = 0;  ///< slots before the round's
};

enum class round_part : std::uint8_t { products, head, attention, gdn, rows, exchange };
enum class round_phase : std::uint8_t { settle, drafts, verify, keep };

/// What a launch that is no product asks of the machine. Trips follow one another.
struct kernel_work {
  double dram_bytes = 0;
  double l2_bytes = 0;    ///< of what the kernels before have left there
  double peer_bytes = 0;  ///< to each of the other ranks
  double dram_trips = 0;
  double l2_trips = 0;
  double shared_trips = 0;  ///< shared memory or shuffles
  double barriers = 0;
  double hops = 0;          ///< from rank to rank
  double alone_cycles = 0;  ///< of a warp's arithmetic that nothing hides
  double busy_cycles = 0;   ///< of the busiest multiprocessor, beside its loads
};

struct round_launch {
  std::string kernel;  ///< "gemm", or the server's name without _params
  round_phase phase = round_phase::verify;
  round_part part = round_part::rows;
  std::int64_t count = 0;
  std::int64_t m = 0;       ///< rows
  model_shape weight = {};  ///< of a product
  kernel_work work = {};    ///< of another launch

  [[nodiscard]] bool is_product() const { return kernel == "gemm"; }
};

/// All of a round, in order as far as they differ; equal ones of all layers are one entry.
[[nodiscard]] std::vector<round_launch> round_launches(rank_model const& model,
                                                       round_shape const& shape);

}  // namespace qpn::bench::v100

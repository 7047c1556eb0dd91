// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/load.hpp"

namespace qwen38::cli {

struct round_bench_flags {
  std::vector<int> depths = {0, 3, 7, 15};
  std::vector<std::int64_t> live = {512, 8192, 32768, 65536, 131072};
  std::vector<std::int64_t> prefill = {512, 2048, 4096, 8192, 32768};
  /// Drafts that a round accepts, whatever the model says; "k": all.
  std::vector<std::string> accepts = {"0", "3", "k"};
  std::vector<std::int64_t> declared = {4096, 32768, 131072, 262144};
  std::vector<int> lanes = {1, 2, 4, 8};
  std::int64_t side_live = 2048;  ///< live context of the runs over lanes and declared contexts
  int rounds = 10;                ///< timed of each kind
  bool json = false;
};

/// Bytes that a round of one rank has to read and write, from the sizes of the packed weights and
/// of the model's state:
///   weights   every linear of the layers and the head once, in the verify pass; and for each of
///   the
///             k drafts mtp.fc, the MTP layer and the head once more, and its keys' and values'
///             linear once for the rows that became settled
///   kv        2 x kv_dim x 2 bytes for each token that is live, of each full-attention layer once,
///             and of the MTP layer k times; for each lane
///   state     fp32 S of all GDN layers: read and written with k = 0; read by the verify pass, then
///             read and written when the accepted rows are replayed, with k > 0; for each lane
/// Activations, norms, embedding rows and the replay's record are left out: under 1 %.
struct round_bytes {
  std::uint64_t verify_weights = 0;
  std::uint64_t draft_weights = 0;  ///< of one draft
  std::uint64_t settle_weights = 0;
  std::uint64_t kv_of_layer = 0;  ///< of a token
  std::uint64_t attention_layers = 0;
  std::uint64_t state_of_lane = 0;

  [[nodiscard]] std::uint64_t of_round(int k, std::int64_t live, int lanes) const noexcept;
};

/// Times what a decode server does, without a text: prefill, each prompt from its first token, and
/// rounds whose acceptance is forced,
/// so that drafting, verification, rollback and replay take what they take with any weights. Rounds
/// are timed by the host's clock, over `rounds` of them, after three that warm up and record.
///
/// A live context is filled by prefill as far as `prefill` goes; beyond, pages hold zeros: work
/// does not depend on values. Rounds end at the live context. The recurrent state is one that was
/// saved after the first prefill pass. GPU clocks are printed as nvidia-smi gives them, and never
/// set.
/// @return the exit code
int bench_rounds(model_flags flags, round_bench_flags const& wanted);

}  // namespace qwen38::cli

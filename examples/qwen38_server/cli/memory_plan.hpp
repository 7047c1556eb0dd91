// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <qpn/device_info.hpp>
#include <string>
#include <vector>

#include "cli/load.hpp"
#include "ops/cuda/memory_ledger.hpp"

namespace qwen38::cli {

/// A GPU that a model is planned for.
struct gpu_card {
  std::string name;  ///< for messages
  qpn::device_info info;
  std::size_t bytes = 0;  ///< its memory
  std::size_t used =
      0;  ///< of that, taken before the model comes: the CUDA context, other programs
};

/// "v100-16gb", "h200" and others.
/// @throws qwen38::error (invalid_argument) for another name
[[nodiscard]] gpu_card known_card(std::string const& name);
[[nodiscard]] std::vector<std::string> known_card_names();

/// Device memory of one rank. Each part is a sum of allocations, rounded up to 256 bytes each.
struct rank_memory {
  std::size_t weights = 0;    ///< packed linears and constants
  std::size_t embedding = 0;  ///< whole on each rank
  std::size_t kv_cache = 0;
  std::size_t gdn_state = 0;  ///< lanes, records, snapshots, scratch of a pass
  std::size_t workspace = 0;  ///< rows of a pass, products, attention, packing
  std::size_t exchange = 0;   ///< between ranks
  std::size_t graphs = 0;     ///< an allowance: what CUDA keeps for recorded rounds
  std::size_t arena = 0;      ///< one piece of memory for all but the graphs, gaps included

  [[nodiscard]] std::size_t parts() const noexcept {
    return weights + embedding + kv_cache + gdn_state + workspace + exchange;
  }
  [[nodiscard]] std::size_t needed() const noexcept { return arena + graphs; }
};

/// What of a device's allocations is what, by the use that each names.
[[nodiscard]] rank_memory by_part(ops::cuda::memory_ledger const& ledger);

struct memory_plan {
  std::string model;
  int tp = 1;
  int lanes = 0;
  std::int64_t context = 0;
  std::int64_t kv_tokens = 0;
  std::int32_t snapshots = 0;
  std::int32_t prefill_pass = 0;   ///< rows
  std::uint64_t launches = 0;      ///< of the longest round, of one rank
  double fraction = 1;             ///< of a card that may be in use
  std::vector<gpu_card> cards;     ///< of each rank
  std::vector<rank_memory> ranks;  ///< on a card of its own each

  /// Bytes that a rank may take.
  [[nodiscard]] std::size_t room(int rank) const;
  [[nodiscard]] bool fits() const;
  /// Tokens that the KV cache could hold if it took all that the other parts leave, in whole pages;
  /// the least of all ranks, and never negative.
  [[nodiscard]] std::int64_t tokens_that_fit() const;
  /// One sentence: what is needed, what is there, which flag helps; "" if it fits.
  [[nodiscard]] std::string shortage() const;
};

/// The plan of a model that is loaded with these flags on these cards, one for each rank: the
/// loader and the model themselves, run on devices that only count (ops/cuda/counting_device.hpp),
/// then every kind of work once (model/rehearsal.hpp). So it is exact to the byte but for the
/// graphs. Reads the checkpoint's headers, no weights; needs no GPU.
[[nodiscard]] memory_plan plan_memory(model_flags const& flags, std::vector<gpu_card> cards);

/// A table for people, of one line per part.
[[nodiscard]] std::string to_table(memory_plan const& plan);
[[nodiscard]] nlohmann::ordered_json to_json(memory_plan const& plan);

}  // namespace qwen38::cli

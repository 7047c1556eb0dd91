// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hub_revision.hpp"
#include "cli/numa.hpp"
#include "model/round_costs.hpp"
#include "model/weights.hpp"
#include "ops/backend.hpp"

namespace qwen38::cli {

/// What one rank has packed and run.
struct rank_facts {
  std::vector<model::linear_record> linears;
  std::vector<ops::route_count> routes;  ///< the warm-up's among them
  std::string attention_route;
  std::size_t weight_bytes = 0;
  std::size_t kv_cache_bytes = 0;
  std::size_t gdn_state_bytes = 0;
  std::optional<numa_place> place;  ///< none: --numa off, or on the CPU
};

/// The first request, which no client sent.
struct warm_up_facts {
  bool failed = false;
  std::string message;  ///< why it failed
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
  std::int64_t drafted = 0;
  int draft_tokens = 0;  ///< the depth its rounds had
  double ms = 0;
};

/// Everything the start-up gate looks at.
struct startup_facts {
  std::string model;
  std::string device;
  int tp = 1;
  std::size_t tensors = 0;  ///< of the checkpoint
  std::uint64_t tensor_bytes = 0;
  std::size_t ignored_tensors = 0;  ///< neither used nor missed: vision, activation scales, ...
  /// SHA-256 over config.json and the index (or a single file's header): which names, types and
  /// places the checkpoint has, not what is in them.
  std::string structure;
  std::optional<checkpoint::hub_revision> revision;  ///< that it was downloaded at
  std::string known_as;            ///< a checkpoint that this program knows; "": unpinned
  std::string known_by;            ///< "structure" or "revision"; "": unpinned
  std::string kv_cache_directive;  ///< declared KV cache type; "": none
  std::vector<rank_facts> ranks;
  bool has_mtp = false;
  std::int32_t prefill_pass = 0;  ///< rows
  int drafts_asked = 0;
  bool depth_is_chosen = false;    ///< round by round, up to drafts_asked
  bool drafts_were_asked = false;  ///< by a flag, not by its default
  std::optional<model::round_costs> costs;
  warm_up_facts warm_up;
  std::string best_cpu_route;  ///< "cpu/avx2": the prefix of routes that are none's fallback
  bool emulated_is_allowed = false;
};

/// Fills known_as and known_by from structure and revision: the structure goes before, since it is
/// the files' own.
void recognise_checkpoint(startup_facts& facts);

/// Routes that stand in for a better one: other instructions than the CPU's best, or a matrix
/// instruction that the GPU lacks.
[[nodiscard]] std::vector<std::string> fallback_routes(startup_facts const& facts);

/// One sentence that says why these facts must not be served, or "".
[[nodiscard]] std::string find_surprise(startup_facts const& facts);

/// What `--report` and GET /v1/internal/report give. `surprise`: of find_surprise.
[[nodiscard]] nlohmann::ordered_json to_json(startup_facts const& facts,
                                             std::string const& surprise);

}  // namespace qwen38::cli

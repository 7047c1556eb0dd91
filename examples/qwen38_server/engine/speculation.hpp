// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/lane.hpp"
#include "engine/sampler.hpp"
#include "engine/sequence_memory.hpp"
#include "model/causal_lm.hpp"

namespace qwen38::engine {

/// Takes lanes through the model: prefill chunk by chunk, then rounds of draft and verify. A lane
/// with k = 0 takes part in the same rounds with no drafts and never touches the MTP layer; except
/// that where states are kept for later prompts (limits.snapshots > 0), its prefill writes the MTP
/// layer's keys and values too, because what goes on from there may draft.
///
/// At every row the next token is drawn as if there were no drafts, and a draft is accepted iff it
/// equals that token; so with a model whose rows are independent the output does not depend on k,
/// on the other lanes, or on how a round is split into passes.
///
/// What a model call throws ends the lanes in that call, and a row that gives no token ends its
/// lane: finish_reason::failed, with one sentence. The other lanes go on.
class speculative_loop {
 public:
  /// costs: of the model's rounds, outlive this; null where no request chooses its depth. on_fault:
  /// is told what an exception says; may be empty.
  speculative_loop(model::causal_lm& model, model::round_costs const* costs,
                   std::function<void(std::string const&)> on_fault)
      : model_(model), costs_(costs), on_fault_(std::move(on_fault)) {}

  /// Starts a sequence in the pages reserved, from the snapshot if there is one.
  void begin(lane& one, generation& work, reservation const& held);

  /// The next chunk of a prompt, up to the next multiple of limits.prefill_chunk. The last one
  /// emits the first token.
  void prefill(lane& one);

  /// Copies the state of a lane that prefill brought to a chunk border to a snapshot's place.
  bool save(lane& one, std::int32_t place);

  /// One round of every lane given, none of which is prefilling: at least one token each. As few
  /// rounds of the model as limits.max_rows allows, each with whole lanes.
  void decode(std::span<lane* const> running);

 private:
  template <class Call>
  bool attempt(std::span<lane* const> concerned, Call const& call);
  void write_mtp_rows(lane& one, std::int64_t first, std::int64_t end, bool last);
  void decode_group();
  void accept(lane& one, model::round_result const& got);
  [[nodiscard]] std::int32_t next_token(lane const& one, model::round_result const& got,
                                        std::size_t row);

  model::causal_lm& model_;
  model::round_costs const* costs_;
  std::function<void(std::string const&)> on_fault_;
  sampler_scratch scratch_;
  // Of the round in hand; members so that a round allocates nothing once they have grown.
  std::vector<lane*> group_;
  std::vector<model::round_lane> batch_;
  std::vector<model::round_result> results_;
  std::vector<std::int32_t> shifted_;
};

}  // namespace qwen38::engine

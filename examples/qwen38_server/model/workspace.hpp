// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <qpn/gemm_types.hpp>
#include <vector>

#include "model/qwen38.hpp"
#include "model/recordings.hpp"

namespace qwen38::model {

/// Most rows of decode and verify in a pass: their bits are the same in any company. Prefill passes
/// may have more, and one sequence alone.
inline constexpr std::int32_t max_rows = static_cast<std::int32_t>(qpn::gemm_max_m);
inline constexpr std::int32_t max_tentative_rows = 16;
static_assert(max_settled == max_tentative_rows, "a round settles what its rows were");

/// Tensors of one pass: pass_rows_ rows each, but max_rows of what only rows with logits, rows that
/// draft and verified rows have.
struct qwen38_model::workspace {
  ops::tensor x;             ///< fp32 residual stream
  ops::tensor normed;        ///< [hidden]
  ops::tensor q_gate_kv;     ///< [heads * 2 * head_dim | 2 * kv_heads * head_dim]
  ops::tensor q_gate;        ///< its columns
  ops::tensor kv;            ///< its columns
  ops::tensor attended;      ///< [heads * head_dim]
  ops::tensor qkvz;          ///< [conv_channels + value_channels]
  ops::tensor ba;            ///< [2 * value_heads]
  ops::tensor mixed;         ///< [value_channels]
  ops::tensor activated;     ///< [intermediate]
  ops::tensor hidden;        ///< [hidden] normed output of the latest forward(): rows of `held`
  ops::tensor selected;      ///< [hidden] max_rows rows whose logits are wanted
  ops::tensor logits;        ///< [vocab_size] of the rank, of these
  ops::tensor all_logits;    ///< [vocab_size] of all ranks, on rank 0 of several
  ops::tensor partial;       ///< [hidden] this rank's term of a sum over ranks
  ops::tensor draft_input;   ///< [2 * hidden] embedding half, hidden half
  ops::tensor draft_source;  ///< [hidden] hidden states that the drafts start from
  ops::tensor draft_x;       ///< [hidden] residual stream of the max_rows rows that draft
  ops::tensor draft_out;     ///< [hidden] their normed MTP output
  /// [hidden] What outlives a pass: the rows of `hidden`, two carried rows of each lane (see
  /// lane_state::carried), one of each snapshot, each lane's latest MTP output, what may become
  /// settled of each lane's latest pass, and a row that nobody reads.
  ops::tensor held;
  ops::token_list tokens;                ///< drafts of a round by depth, then what its rows chose
  std::unique_ptr<ops::pass> pass;       ///< of forward() and draft()
  std::unique_ptr<ops::pass> last_pass;  ///< of the rows that draft
  /// Of round(), all set together: the target's rows, the settled rows, the last of those, and the
  /// further drafts by depth.
  std::vector<std::unique_ptr<ops::pass>> round_passes;
  recordings recorded;
  std::vector<std::unique_ptr<ops::storage>> memory;
};

}  // namespace qwen38::model

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "round_launches.hpp"

// The kernels of the server's ops/cuda that are no products: what each asks of the machine. Trips
// and barriers are counted from their bodies, along the way of the slowest warp.

namespace qpn::bench::v100 {

[[nodiscard]] kernel_work embed_work(std::int64_t rows, std::int64_t cols);
[[nodiscard]] kernel_work rms_norm_work(std::int64_t rows, std::int64_t cols);
[[nodiscard]] kernel_work copy_rows_work(std::int64_t rows, std::int64_t cols, bool has_moves);
[[nodiscard]] kernel_work pack_tokens_work();

[[nodiscard]] kernel_work store_kv_work(rank_model const& model, std::int64_t rows);
/// store_kv and the queries in one launch.
[[nodiscard]] kernel_work prepare_heads_work(rank_model const& model, std::int64_t rows);
/// Rows whose last sees `slots` slots.
[[nodiscard]] kernel_work attention_work(rank_model const& model, std::int64_t rows,
                                         std::int64_t slots);
[[nodiscard]] kernel_work attention_output_work(rank_model const& model, std::int64_t rows,
                                                std::int64_t slots);

/// Whether one launch does all of a layer's GDN.
[[nodiscard]] bool is_gdn_short(rank_model const& model, std::int64_t rows);
[[nodiscard]] kernel_work gdn_short_work(rank_model const& model, std::int64_t rows, bool keeps);
[[nodiscard]] kernel_work gdn_prepare_work(rank_model const& model, std::int64_t rows);
/// S is written again only where `keeps`.
[[nodiscard]] kernel_work gdn_recurrence_work(rank_model const& model, std::int64_t rows,
                                              bool keeps);
/// The same over all layers, with two columns of S for each lane.
[[nodiscard]] kernel_work gdn_replay_work(rank_model const& model, std::int64_t rows);
[[nodiscard]] kernel_work gdn_norm_work(rank_model const& model, std::int64_t rows);
[[nodiscard]] kernel_work gdn_shift_work(rank_model const& model, std::int64_t layers, bool keeps);

/// x += the ranks' partial sums, and the norm of x.
[[nodiscard]] kernel_work peer_reduce_work(rank_model const& model, std::int64_t rows);
/// A token of each row to every other rank.
[[nodiscard]] kernel_work gather_ids_work(std::int64_t rows);
[[nodiscard]] kernel_work best_of_ranks_work(rank_model const& model);

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/backend.hpp"
#include "ops/tensor.hpp"

namespace qwen38::parallel {

using ops::ranked_id;

/// The norm of a residual stream that has taken up a sum: y = backend::rms_norm(x, w, eps), bit for
/// bit.
struct norm_step {
  ops::constants const* w = nullptr;  ///< null: none
  float eps = 0;
  ops::tensor y;
  ops::linear const* next = nullptr;  ///< what will read y, if one product does first
};

/// The best ids of rows and their values, [rows][candidates], in the memory of the backend, as
/// qpn::gemm lists them.
struct candidate_lists {
  std::int32_t* ids = nullptr;
  float* values = nullptr;
  std::int64_t rows = 0;
  int candidates = 0;
};

/// One rank's end of a group of ranks: the only way by which data crosses. Tensors are rows in the
/// memory of the rank's backend. Every rank makes the same calls in the same order, with equal
/// shapes. A call is done in the order of the backend's work, as the backend's own operations are.
/// Once a rank has given up, calls throw qwen38::error (internal) instead of waiting for it.
class communicator {
 public:
  virtual ~communicator() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// How ranks meet, for logs: "one-shot kernel over peer memory".
  [[nodiscard]] virtual char const* name() const noexcept = 0;
  /// Device memory that this end holds.
  [[nodiscard]] virtual std::size_t resident_bytes() const noexcept = 0;
  /// Whether calls may be part of what a backend records, as long as all ranks record and replay
  /// the same, in the same order.
  [[nodiscard]] virtual bool can_capture() const noexcept = 0;

  /// x += (rank 0's partial + rank 1's partial + ...), element by element, added in that order: the
  /// same bits on every rank that holds the same x. Then the norm. `partial` may be overwritten.
  virtual void sum_into(ops::tensor partial, ops::tensor x, norm_step const& then) = 0;
  void sum_into(ops::tensor partial, ops::tensor x) { sum_into(partial, x, {}); }

  /// Rank r's row i of `shard` becomes columns [r * shard.cols, (r + 1) * shard.cols) of rank 0's
  /// row i of `full`. Other ranks' `full` is not looked at. fp32.
  virtual void gather_columns(ops::tensor shard, ops::tensor full) = 0;

  /// Every rank's lists become those of the best of all ranks' candidates (qpn::merge_candidates):
  /// what one product over the whole head would have listed. Ids differ from rank to rank.
  virtual void merge_candidates(candidate_lists const& lists) = 0;

  /// Each element, in the memory of the backend, becomes the largest of all ranks' by ranked_key().
  virtual void max_over_ranks(ops::token_list best) = 0;

  /// Throws (internal) what went wrong in the group's work so far, as far as it is known: ranks
  /// that were waited for in vain. Results are good if it returns after the backend's work was
  /// waited for.
  virtual void check() = 0;

  /// This rank makes no more calls: those that wait for it throw, now and later, and its waiting
  /// kernels end.
  virtual void give_up() noexcept = 0;

  /// After every rank has given up, while none is in a call: takes this one back. false: some rank
  /// had already waited for another, so that their states may differ and the group stays broken.
  [[nodiscard]] virtual bool rejoin() noexcept = 0;
};

}  // namespace qwen38::parallel

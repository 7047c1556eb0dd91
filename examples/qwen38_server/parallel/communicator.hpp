// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "ops/tensor.hpp"

namespace qwen38::parallel {

using ops::ranked_id;

/// One rank's end of a group of ranks: the only way by which data crosses. Tensors are fp32 rows in
/// the memory of the rank's backend. Every rank makes the same calls in the same order, with equal
/// shapes; each call waits for all ranks. Once a rank has given up, calls throw qwen38::error
/// (internal) instead of waiting for it.
class communicator {
 public:
  virtual ~communicator() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// x += (rank 0's partial + rank 1's partial + ...), element by element, added in that order: the
  /// same bits on every rank that holds the same x.
  virtual void sum_into(ops::tensor partial, ops::tensor x) = 0;

  /// Rank 0's row r of `full` becomes row r of every rank's `shard`, side by side in rank order.
  /// Other ranks' `full` is not looked at.
  virtual void gather_columns(ops::tensor shard, ops::tensor full) = 0;

  /// Each element, in the memory of the rank's backend too, becomes that rank's element with the
  /// largest value; the lowest id wins a tie, and a value that is no number wins over all others.
  virtual void max_over_ranks(std::span<ranked_id> best) = 0;

  /// This rank makes no more calls: those that wait for it throw, now and later.
  virtual void give_up() noexcept = 0;

  /// After every rank has given up, while none is in a call: takes this one back. false: some rank
  /// had already waited for another, so that their states may differ and the group stays broken.
  [[nodiscard]] virtual bool rejoin() noexcept = 0;
};

}  // namespace qwen38::parallel

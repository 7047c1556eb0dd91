// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/config.hpp"

/// Tensor parallelism: which rank holds what, and how the ranks' partial results meet.
namespace qwen38::parallel {

/// Consecutive rows or columns of a tensor.
struct index_range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(index_range const&) const = default;
};

/// What one rank holds of a published tensor [n, k].
struct tensor_slice {
  std::vector<index_range> rows;  ///< in the order in which they are held
  index_range columns;
  bool operator==(tensor_slice const&) const = default;
  [[nodiscard]] std::int64_t row_count() const noexcept;
};

/// Cuts a model over ranks of equal shape.
///   by rows     q, k, v, z, b, a, gate, up, A_log, dt_bias and the head: whole heads, MLP columns
///               and ids; in_proj_qkv and the convolution: the rank's heads of each of q, k and v
///   by columns  o, out and down projections, whose partial results are added up over the ranks
///   whole       norms, the embedding, mtp.fc
/// The MTP layer is cut as every full-attention layer.
class shard_plan {
 public:
  /// @throws qwen38::error (invalid_argument) that names what does not split over `size` ranks.
  shard_plan(checkpoint::model_config const& config, int size);

  [[nodiscard]] int size() const noexcept { return size_; }

  /// The model as one rank runs it: its heads, its columns of the MLP, and as vocab_size its rows
  /// of the head. The same on every rank.
  [[nodiscard]] checkpoint::model_config const& rank_shape() const noexcept { return rank_shape_; }

  /// Ids whose rows of the head the rank holds.
  [[nodiscard]] index_range vocabulary(int rank) const noexcept;

  /// `name`: a linear's module or a tensor, as list_model() gives it; `shape` is the published one,
  /// extents after the first taken together.
  /// @throws qwen38::error (internal) for a name that no rule speaks of.
  [[nodiscard]] tensor_slice slice(int rank, std::string_view name,
                                   std::vector<std::int64_t> const& shape) const;

 private:
  int size_;
  checkpoint::model_config rank_shape_;
};

}  // namespace qwen38::parallel

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/backend.hpp"
#include "ops/cuda/device_pass.hpp"
#include "ops/cuda/memory.hpp"

namespace qwen38::ops::cuda {

/// fp32 constants of a mixer, in device memory.
struct gdn_constants {
  float const* conv = nullptr;
  float const* a_log = nullptr;
  float const* dt_bias = nullptr;
  float const* norm = nullptr;
};

/// States, records and snapshots of all GDN layers, and the scratch of a pass.
class device_gdn_state final : public gdn_state {
 public:
  /// @param in_one_launch  passes of short spans, where the shape is one that gdn_short.hpp has
  device_gdn_state(device& owner, gdn_shape const& shape, std::int64_t layers, std::int64_t lanes,
                   std::int64_t max_tentative_rows, std::int64_t snapshots,
                   bool in_one_launch = true);
  [[nodiscard]] std::size_t resident_bytes() const noexcept override;

  /// Spans of few rows take one launch (gdn_short.hpp), with the bits of the launches that it
  /// stands for. Rows in chunks of final spans run on tensor cores where the GPU has them
  /// (gdn_chunks.hpp).
  void run(std::int64_t layer, device_pass const& p, tensor const& qkvz, tensor const& ba,
           gdn_constants const& w, output_rows const& out);
  void keep(int lane, std::int64_t rows);
  void reset(int lane);
  void save(int lane, std::int64_t snapshot);
  void load(int lane, std::int64_t snapshot);

 private:
  /// @tparam Ctas  of a head
  template <int Ctas>
  void run_short(std::int64_t layer, device_pass const& p, tensor const& qkvz, tensor const& ba,
                 gdn_constants const& w, output_rows const& out);
  /// Advances S by the chunks of the pass's spans, most `chunks` of any.
  void run_chunks(std::int64_t layer, device_pass const& p, gdn_rows const& rows,
                  std::int64_t chunks, float* out);
  void require_snapshot(std::int64_t snapshot) const;
  /// The lane's S or columns, a line per layer, and their places in a snapshot.
  [[nodiscard]] byte_lines lane_lines(device_block const& memory, int lane,
                                      std::int64_t values) const;
  [[nodiscard]] byte_lines saved_lines(std::int64_t snapshot, std::int64_t first) const;

  device& owner_;
  std::int64_t layers_;
  std::int64_t snapshots_;
  gdn_memory memory_;
  device_block s_, conv_, raw_, mixed_, decay_, beta_;
  std::uint64_t written_ = 0;            ///< device::borders() when the state was written last
  std::int64_t rows_in_one_launch_ = 0;  ///< most of a span
  device_block arrivals_;                ///< of gdn_short_params
  device_block saved_;                   ///< [snapshot][layer][S, columns]
  scratch_block pass_mixed_, pass_decay_, pass_beta_, pass_out_;
  bool has_chunks_;  ///< the GPU and the shape have what the chunk kernels need
  scratch_block chunk_keys_, chunk_queries_, chunk_solve_, chunk_recall_, chunk_gates_;
};

}  // namespace qwen38::ops::cuda

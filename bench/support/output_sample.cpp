// SPDX-License-Identifier: Apache-2.0
#include "support/output_sample.hpp"

#include <algorithm>
#include <cstring>

#include "support/reference_sums.hpp"

namespace qpn::bench {

namespace {

constexpr std::int64_t sampled_columns = 256;

template <class T>
std::vector<T> downloaded(test::device_memory const& memory) {
  std::vector<T> values(memory.size() / sizeof(T));
  test::require(cudaMemcpy(values.data(), memory.data(), memory.size(), cudaMemcpyDeviceToHost));
  return values;
}

/// The column indices in device memory.
class device_indices {
 public:
  explicit device_indices(std::vector<std::int64_t> const& indices)
      : count_(static_cast<std::int64_t>(indices.size())),
        memory_(indices.size() * sizeof(std::int64_t)) {
    memory_.upload(indices);
  }
  [[nodiscard]] std::int64_t const* get() const {
    return reinterpret_cast<std::int64_t const*>(memory_.data());
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  std::int64_t count_;
  test::device_memory memory_;
};

std::vector<test::exact_sum> sums_of(finished_launch const& launch,
                                     std::vector<std::int64_t> const& weight_rows,
                                     machine const& gpu) {
  packed_layout const& layout = launch.weights->layout();
  device_indices const rows(weight_rows);
  test::device_memory const sums(static_cast<std::size_t>(rows.count() * launch.m) *
                                 sizeof(test::exact_sum));
  test::require(launch_reference_sums(
      layout.format, launch.weights->last_published(), layout.k, rows.get(), rows.count(), launch.x,
      launch.m, launch.ldx, reinterpret_cast<test::exact_sum*>(sums.data()), gpu.stream()));
  gpu.wait();
  return downloaded<test::exact_sum>(sums);
}

std::vector<double> gathered(void const* y, std::int64_t m, std::int64_t ldy,
                             device_indices const& columns, machine const& gpu) {
  test::device_memory const out(static_cast<std::size_t>(columns.count() * m) * sizeof(double));
  test::require(launch_gather(y, m, ldy, columns.get(), columns.count(),
                              reinterpret_cast<double*>(out.data()), gpu.stream()));
  gpu.wait();
  return downloaded<double>(out);
}

std::int64_t nans_of(finished_launch const& launch, std::int64_t columns, machine const& gpu) {
  test::device_memory count(sizeof(unsigned long long));
  unsigned long long found = 0;
  count.upload(&found, sizeof found);
  test::require(launch_count_nans(launch.y, launch.m, columns, launch.ldy,
                                  reinterpret_cast<unsigned long long*>(count.data()),
                                  gpu.stream()));
  gpu.wait();
  return static_cast<std::int64_t>(downloaded<unsigned long long>(count).front());
}

}  // namespace

sampled_output sample_output(finished_launch const& launch, machine const& gpu) {
  packed_layout const& layout = launch.weights->layout();
  std::int64_t const columns = launch.gated ? layout.n / 2 : layout.n;
  sampled_output sampled;
  sampled.m = launch.m;
  sampled.k = layout.k;
  sampled.code_type = layout.code_type;
  sampled.columns = sample_columns(columns, sampled_columns);
  std::vector<std::int64_t> rows = sampled.columns;
  if (launch.gated) {
    // Tiles of gate and up take turns.
    for (std::int64_t& row : rows) row = row / tile_n * 2 * tile_n + row % tile_n;
  }
  sampled.sums = sums_of(launch, rows, gpu);
  if (launch.gated) {
    for (std::int64_t& row : rows) row += tile_n;
    sampled.up_sums = sums_of(launch, rows, gpu);
  }
  device_indices const indices(sampled.columns);
  sampled.y = gathered(launch.y, launch.m, launch.ldy, indices, gpu);
  if (launch.residual != nullptr) {
    sampled.residual = gathered(launch.residual, launch.m, launch.ld_residual, indices, gpu);
  }
  sampled.nans = nans_of(launch, columns, gpu);
  return sampled;
}

}  // namespace qpn::bench

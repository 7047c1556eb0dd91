// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/memory.hpp"
#include "parallel/device_group.hpp"
#include "parallel/rank_team.hpp"
#include "support/error.hpp"
#include "test/ops/cuda/test_device.hpp"
#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {

/// A device for each rank: streams of one GPU, or GPUs of their own.
[[nodiscard]] inline std::vector<std::shared_ptr<ops::cuda::device>> open_ranks(int size,
                                                                                bool one_gpu) {
  std::vector<std::shared_ptr<ops::cuda::device>> devices;
  for (int rank = 0; rank < size; ++rank) {
    devices.push_back(open_test_device(device_kind::plain, one_gpu ? 0 : rank));
  }
  return devices;
}

/// A group and a backend for each rank.
struct ranks_on_devices {
  static constexpr std::int64_t max_rows = 8;
  static constexpr std::int64_t max_cols = 200;

  ranks_on_devices(int size, bool one_gpu,
                   std::chrono::milliseconds patience = std::chrono::seconds(30))
      : devices(open_ranks(size, one_gpu)),
        team(parallel::make_device_group(devices, {max_rows, max_cols, patience})) {
    for (auto const& one : devices) backends.push_back(ops::cuda::make_backend(one));
  }
  [[nodiscard]] ops::cuda::device& device(int rank) const {
    return *devices[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] ops::backend& backend(int rank) const {
    return *backends[static_cast<std::size_t>(rank)];
  }

  std::vector<std::shared_ptr<ops::cuda::device>> devices;
  std::vector<std::unique_ptr<ops::backend>> backends;
  parallel::rank_team team;
};

/// "": none
[[nodiscard]] inline std::string failure_of(parallel::rank_team& team,
                                            std::function<void(int)> const& task) {
  try {
    team.run(task);
  } catch (error const& failure) {
    return failure.what();
  }
  return "";
}

/// Rows of one rank in its device's memory, whose stride exceeds their columns.
class device_rows {
 public:
  device_rows(ops::cuda::device& owner, qpn::dtype type, std::int64_t rows, std::int64_t cols,
              std::int64_t padding = 0)
      : device_(&owner),
        element_(type == qpn::dtype::f16 ? 2 : 4),
        memory_(owner, static_cast<std::size_t>(rows * (cols + padding)) * element_ + element_,
                "test rows"),
        view_{memory_.as(), type, rows, cols, cols + padding} {}

  [[nodiscard]] ops::tensor const& view() const { return view_; }

  /// fp32 values, row after row.
  void write(std::span<float const> values) {
    for (std::int64_t r = 0; r < view_.rows; ++r) {
      auto const row = values.subspan(static_cast<std::size_t>(r * view_.cols),
                                      static_cast<std::size_t>(view_.cols));
      device_->upload(view_.slice_rows(r, 1).data, row.data(), row.size_bytes());
    }
  }
  template <class T = float>
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(view_.rows * view_.cols));
    device_->download(
        values.data(), {view_.data, static_cast<std::size_t>(view_.stride) * element_},
        static_cast<std::size_t>(view_.cols) * element_, static_cast<std::size_t>(view_.rows));
    return values;
  }

 private:
  ops::cuda::device* device_;
  std::size_t element_;
  ops::cuda::device_block memory_;
  ops::tensor view_;
};

}  // namespace qwen38::test

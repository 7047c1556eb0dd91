// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/memory.hpp"
#include "parallel/rank_team.hpp"
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

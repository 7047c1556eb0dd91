// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <qpn/dtype.hpp>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "ops/cpu/cpu_backend.hpp"
#include "ops/cuda/cuda_backend.hpp"
#include "test/ops/cuda/test_device.hpp"

// The CPU backend, which is the reference, and the CUDA backend, side by side.

namespace qwen38::test {

[[nodiscard]] inline std::vector<float> random_floats(std::uint64_t seed, std::int64_t count,
                                                      float scale = 1.0F) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// The nearest values that fp16 holds.
[[nodiscard]] inline std::vector<float> rounded_to_f16(std::vector<float> values) {
  for (float& value : values) value = qpn::decode_f16(qpn::encode_f16_saturating(value));
  return values;
}

[[nodiscard]] inline bool same_bits(std::span<float const> a, std::span<float const> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// ||got - wanted|| / ||wanted||
[[nodiscard]] inline double relative_error(std::span<float const> got,
                                           std::span<float const> wanted) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
    size += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(difference / size);
}

/// A backend whose tensors tests can fill.
class test_backend {
 public:
  static test_backend cpu() { return test_backend(ops::cpu::make_backend(2), nullptr); }
  static test_backend cuda(ops::cuda::cuda_options const& options = {},
                           device_kind kind = device_kind::plain) {
    auto gpu = open_test_device(kind);
    ops::cuda::device* const seen = gpu.get();
    return test_backend(ops::cuda::make_backend(std::move(gpu), options), seen);
  }

  ops::backend* operator->() const { return backend_.get(); }
  ops::backend& operator*() const { return *backend_; }

  ops::tensor make(ops::row_kind kind, std::int64_t rows, std::int64_t cols) {
    ops::tensor view;
    memory_.push_back(backend_->make_tensor(kind, rows, cols, view));
    return view;
  }
  ops::tensor make(ops::row_kind kind, std::int64_t rows, std::vector<float> const& values) {
    ops::tensor const view = make(kind, rows, rows == 0 ? 0 : std::ssize(values) / rows);
    write(view, values);
    return view;
  }
  /// Values that the tensor's kind holds exactly.
  void write(ops::tensor const& to, std::span<float const> values) const {
    for (std::int64_t r = 0; r < to.rows; ++r) {
      auto const row =
          values.subspan(static_cast<std::size_t>(r * to.cols), static_cast<std::size_t>(to.cols));
      void* const target = to.slice_rows(r, 1).data;
      if (device_ == nullptr) {
        std::memcpy(target, row.data(), row.size_bytes());
      } else if (to.type == qpn::dtype::f32) {
        device_->upload(target, row.data(), row.size_bytes());
      } else {
        std::vector<std::uint16_t> halves;
        for (float value : row) halves.push_back(qpn::encode_f16_saturating(value));
        device_->upload(target, halves.data(), halves.size() * 2);
      }
    }
  }
  void write(std::span<ops::ranked_id const> tokens, ops::token_list to) const {
    if (device_ == nullptr) {
      std::ranges::copy(tokens, to.begin());
    } else if (!tokens.empty()) {
      device_->upload(to.data(), tokens.data(), tokens.size_bytes());
    }
  }
  [[nodiscard]] std::vector<float> read(ops::tensor const& from) const {
    std::vector<float> values(static_cast<std::size_t>(from.rows * from.cols));
    backend_->read(from, values);
    return values;
  }
  /// A pass that lives as long as the backend.
  ops::pass& set(ops::pass_rows const& rows) {
    if (!pass_) pass_ = backend_->make_pass({520, 8, 160, 520});
    backend_->set_pass(*pass_, rows);
    return *pass_;
  }

 private:
  test_backend(std::unique_ptr<ops::backend> backend, ops::cuda::device* seen)
      : device_(seen), backend_(std::move(backend)) {}

  ops::cuda::device* device_;  ///< null: the host's memory
  std::unique_ptr<ops::backend> backend_;
  std::vector<std::unique_ptr<ops::storage>> memory_;
  std::unique_ptr<ops::pass> pass_;
};

}  // namespace qwen38::test

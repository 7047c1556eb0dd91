// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// A GPU that is not there: it keeps account of memory and does nothing else. What the backend does
/// on it takes the memory that it takes on a real one with the same properties, to the byte; all
/// that is read back is 0. So a plan of a model's memory is the model itself, run on this.
class counting_device : public device {
 public:
  /// Devices with different ordinals stand for different GPUs.
  counting_device(qpn::device_info const& info, std::string name, int ordinal)
      : info_(info), name_(std::move(name)), ordinal_(ordinal) {}

  [[nodiscard]] qpn::device_info const& info() const noexcept override { return info_; }
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] void* allocate(std::size_t bytes, std::string const& what) override;
  void release(void* memory) noexcept override;
  void reserve(std::size_t /*bytes*/) override {}
  [[nodiscard]] memory_ledger const& memory() const noexcept override { return ledger_; }

  void clear(byte_lines /*to*/, std::size_t /*width*/, std::size_t /*height*/) override {}
  void copy(byte_lines /*to*/, byte_lines /*from*/, std::size_t /*width*/,
            std::size_t /*height*/) override {}
  void upload(void* /*to*/, void const* /*from*/, std::size_t /*bytes*/) override {}
  void download(void* to, byte_lines from, std::size_t width, std::size_t height) override;
  void wait() override {}
  [[nodiscard]] std::uint64_t waits() const noexcept override { return 0; }
  /// Kernels and products of the longest capture.
  [[nodiscard]] std::uint64_t longest_capture() const noexcept { return longest_capture_; }

  [[nodiscard]] std::unique_ptr<device_graph> capture_alone(
      std::function<void()> const& work) override;
  void replay_alone(device_graph& /*graph*/) override {}
  void launch(kernel_params const& kernel) override;
  void init_workspace(linear_plan const& /*plan*/, qpn::workspace_view /*workspace*/) override {}
  void gemm(linear_plan const& plan, qpn::gemm_args const& args,
            qpn::workspace_view workspace) override;
  void prepack(qpn::packed_layout const& /*layout*/, qpn::weight_part const& /*rows*/,
               std::int64_t /*first_row*/, std::byte* /*out*/,
               qpn::prepack_report* /*report*/) override {}

  [[nodiscard]] std::unique_ptr<mark> make_mark() override { return std::make_unique<mark>(); }
  void record(mark& /*point*/) override {}
  void wait_for(mark const& /*point*/) override {}
  [[nodiscard]] int ordinal() const noexcept override { return ordinal_; }
  void reach(device const& /*other*/) override {}
  [[nodiscard]] std::shared_ptr<std::uint32_t> make_host_words(std::size_t count) override;
  [[nodiscard]] void* stream() const noexcept override { return nullptr; }

 private:
  qpn::device_info const info_;
  std::string const name_;
  int const ordinal_;
  memory_ledger ledger_;
  std::uint64_t launches_ = 0;
  std::uint64_t longest_capture_ = 0;
};

}  // namespace qwen38::ops::cuda

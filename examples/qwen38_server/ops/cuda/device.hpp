// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <qpn/device_info.hpp>
#include <qpn/format.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>
#include <qpn/prepack_report.hpp>
#include <qpn/workspace.hpp>
#include <string>
#include <variant>

#include "ops/cuda/byte_range.hpp"
#include "ops/cuda/kernel_params.hpp"
#include "ops/cuda/memory_ledger.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cuda {

using linear_plan = std::variant<qpn::gemm_plan<qpn::nvfp4>, qpn::gemm_plan<qpn::fp8>,
                                 qpn::gemm_plan<qpn::dense16>>;

/// `height` lines of `width` bytes, `pitch` bytes apart.
struct byte_lines {
  void* data = nullptr;
  std::size_t pitch = 0;
};

/// The error of a device that has not enough memory.
[[nodiscard]] inline error out_of_memory(std::string const& what, std::size_t bytes,
                                         std::size_t free, std::size_t total,
                                         std::string const& device_name) {
  return error(error_kind::unavailable,
               what + " needs " + std::to_string(bytes >> 20) + " MiB of GPU memory, but " +
                   std::to_string(free >> 20) + " of " + std::to_string(total >> 20) +
                   " MiB are free on " + device_name);
}

/// Work that a device keeps.
class device_graph {
 public:
  virtual ~device_graph() = default;
};

/// A device's end of a group of streams of one GPU whose work goes into one graph. Each device of
/// the group makes the same calls in the same order, on a thread of its own.
class joint_capture {
 public:
  virtual ~joint_capture() = default;
  [[nodiscard]] virtual std::unique_ptr<device_graph> capture(
      std::function<void()> const& work) = 0;
  virtual void replay(device_graph& graph) = 0;
};

/// One GPU and one stream: all that the backend, which is host code, asks of CUDA. Work is done in
/// the order of the calls; only download() and wait() wait for it. Everything throws qwen38::error
/// (internal) with one sentence: what failed, where, and CUDA's reason. A failure of earlier work
/// may show in any later call.
class device {
 public:
  virtual ~device() = default;
  [[nodiscard]] virtual qpn::device_info const& info() const noexcept = 0;
  /// "NVIDIA H200, sm_90, 132 multiprocessors"
  [[nodiscard]] virtual std::string const& name() const noexcept = 0;

  /// Whether kernels may be launched in clusters: on compute capability 9.0 and newer, with code
  /// for it.
  [[nodiscard]] virtual bool has_clusters() const noexcept {
    return info().compute_capability >= 90;
  }

  /// Device memory, all 0, 256-byte aligned. `what` names its use in the message (unavailable)
  /// where there is not enough.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, std::string const& what) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Takes one piece of memory now, in which allocations then find their places as long as they
  /// fit; before the first allocation.
  virtual void reserve(std::size_t bytes) = 0;
  /// What is allocated now.
  [[nodiscard]] virtual memory_ledger const& memory() const = 0;

  virtual void clear(byte_lines to, std::size_t width, std::size_t height) = 0;
  virtual void copy(byte_lines to, byte_lines from, std::size_t width, std::size_t height) = 0;
  /// Host memory may be reused as soon as the call returns: it goes through pinned buffers.
  virtual void upload(void* to, void const* from, std::size_t bytes) = 0;
  /// The bytes are there when the call returns.
  virtual void download(void* to, byte_lines from, std::size_t width, std::size_t height) = 0;
  virtual void wait() = 0;
  /// Times that a call waited for the device.
  [[nodiscard]] virtual std::uint64_t waits() const noexcept = 0;

  /// Keeps what `work` does in this stream, without doing it. It may not wait, upload, or come and
  /// go with memory, nor may another thread do so meanwhile: that is an error here or there.
  [[nodiscard]] std::unique_ptr<device_graph> capture(std::function<void()> const& work) {
    return joint_ != nullptr ? joint_->capture(work) : capture_alone(work);
  }
  void replay(device_graph& graph) {
    if (joint_ != nullptr) {
      joint_->replay(graph);
    } else {
      replay_alone(graph);
    }
  }
  /// From now on work is captured and replayed by a group, which this is one of; null: alone.
  void capture_jointly(joint_capture* end) noexcept { joint_ = end; }
  /// capture() of this stream, and of all that wait for it meanwhile and that it waits for in the
  /// end: their work, too, is kept.
  [[nodiscard]] virtual std::unique_ptr<device_graph> capture_alone(
      std::function<void()> const& work) = 0;
  virtual void replay_alone(device_graph& graph) = 0;
  /// Scratch gave up an address, which graphs captured before may use.
  void note_move() noexcept { ++moves_; }
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

  /// A launch may begin before those before it have ended, and waits for them itself. What begins
  /// to work only when all before has ended, and lets nothing begin until then, is a border, as
  /// products are: behind one, what was written before it may be read without that wait.
  void note_border() noexcept { ++borders_; }
  [[nodiscard]] std::uint64_t borders() const noexcept { return borders_; }

  /// Nothing is launched where there are no blocks.
  virtual void launch(kernel_params const& kernel) = 0;
  /// Bytes that a product will read soon: the next launch(), if it comes before the next gemm(),
  /// may have them fetched into the cache. No result depends on it.
  virtual void read_ahead(byte_range) noexcept {}
  virtual void init_workspace(linear_plan const& plan, qpn::workspace_view workspace) = 0;
  virtual void gemm(linear_plan const& plan, qpn::gemm_args const& args,
                    qpn::workspace_view workspace) = 0;
  /// qpn::prepack_rows on the device; `rows` points to device memory.
  virtual void prepack(qpn::packed_layout const& layout, qpn::weight_part const& rows,
                       std::int64_t first_row, std::byte* out, qpn::prepack_report* report) = 0;

  // Between the devices of a group, one rank each.

  /// A point in a device's stream. One of work that is kept is for other streams of the same
  /// capture.
  class mark {
   public:
    virtual ~mark() = default;
  };
  [[nodiscard]] virtual std::unique_ptr<mark> make_mark() = 0;
  /// The point after all work so far.
  virtual void record(mark& point) = 0;
  /// What follows starts after the point, of this device or another one, that was recorded last.
  virtual void wait_for(mark const& point) = 0;
  /// CUDA's number of the GPU. Devices with the same one are streams of one GPU.
  [[nodiscard]] virtual int ordinal() const noexcept = 0;
  /// Lets this device's kernels reach the memory of another GPU; throws (unavailable) where they
  /// cannot.
  virtual void reach(device const& other) = 0;
  /// `count` words of host memory, all 0, that kernels of all devices can reach. They outlive the
  /// device.
  [[nodiscard]] virtual std::shared_ptr<std::uint32_t> make_host_words(std::size_t count) = 0;
  /// The stream, a cudaStream_t; null where work is emulated.
  [[nodiscard]] virtual void* stream() const noexcept = 0;

 private:
  std::uint64_t moves_ = 0;
  std::uint64_t borders_ = 0;
  joint_capture* joint_ = nullptr;
};

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gpu_device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <qpn/device_info.cuh>
#include <utility>

#include "ops/cuda/gpu_gemm.cuh"
#include "ops/cuda/kernels.cuh"
#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

void check(cudaError_t outcome, char const* what) {
  if (outcome == cudaSuccess) return;
  throw error(error_kind::internal, std::string("CUDA: ") + what + " failed (" +
                                        cudaGetErrorName(outcome) + ": " +
                                        cudaGetErrorString(outcome) + ")");
}

void check(qpn::status const& outcome) {
  if (outcome.ok()) return;
  std::string message = std::string("CUDA: ") + outcome.what;
  if (outcome.cuda_error != 0) {
    message +=
        std::string(" (") + cudaGetErrorString(static_cast<cudaError_t>(outcome.cuda_error)) + ")";
  }
  throw error(error_kind::internal, message);
}

class gpu_mark final : public device::mark {
 public:
  gpu_mark() {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "to create an event");
  }
  gpu_mark(gpu_mark const&) = delete;
  gpu_mark& operator=(gpu_mark const&) = delete;
  ~gpu_mark() override { static_cast<void>(cudaEventDestroy(event)); }

  cudaEvent_t event = nullptr;
};

/// Pinned host memory that copies go through, in turns.
class pinned_ring {
 public:
  static constexpr std::size_t slot_bytes = std::size_t{4} << 20;

  pinned_ring() {
    for (slot& one : slots_) {
      check(cudaMallocHost(&one.data, slot_bytes), "to allocate pinned memory");
      check(cudaEventCreateWithFlags(&one.free, cudaEventDisableTiming), "to create an event");
    }
  }
  pinned_ring(pinned_ring const&) = delete;
  pinned_ring& operator=(pinned_ring const&) = delete;
  ~pinned_ring() {
    for (slot& one : slots_) {
      static_cast<void>(cudaEventDestroy(one.free));
      static_cast<void>(cudaFreeHost(one.data));
    }
  }

  /// Returns how often a slot was still in use.
  [[nodiscard]] int upload(std::byte* to, std::byte const* from, std::size_t bytes,
                           cudaStream_t stream) {
    int waits = 0;
    while (bytes > 0) {
      slot& one = slots_[next_];
      next_ = (next_ + 1) % slot_count;
      std::size_t const part = std::min(bytes, slot_bytes);
      if (cudaEventQuery(one.free) != cudaSuccess) {
        ++waits;
        static_cast<void>(cudaGetLastError());  // not being ready is no error of the next launch
        check(cudaEventSynchronize(one.free), "an earlier upload");
      }
      std::memcpy(one.data, from, part);
      check(cudaMemcpyAsync(to, one.data, part, cudaMemcpyHostToDevice, stream), "an upload");
      check(cudaEventRecord(one.free, stream), "to record an event");
      to += part;
      from += part;
      bytes -= part;
    }
    return waits;
  }

  /// Lines that are packed on the host.
  void download(std::byte* to, std::byte const* from, std::size_t pitch, std::size_t width,
                std::size_t height, cudaStream_t stream) {
    slot& one = slots_[next_];
    check(cudaEventSynchronize(one.free), "an earlier upload");
    for (std::size_t line = 0; line < height;) {
      std::size_t const lines = std::min(height - line, slot_bytes / width);
      if (lines == 0) {  // a line that is longer than the slot
        for (std::size_t at = 0; at < width; at += slot_bytes) {
          download_lines(to + line * width + at, from + line * pitch + at, pitch,
                         std::min(slot_bytes, width - at), 1, one.data, stream);
        }
        ++line;
        continue;
      }
      download_lines(to + line * width, from + line * pitch, pitch, width, lines, one.data, stream);
      line += lines;
    }
  }

 private:
  struct slot {
    void* data = nullptr;
    cudaEvent_t free = nullptr;
  };
  static constexpr std::size_t slot_count = 4;

  static void download_lines(std::byte* to, std::byte const* from, std::size_t pitch,
                             std::size_t width, std::size_t lines, void* through,
                             cudaStream_t stream) {
    check(cudaMemcpy2DAsync(through, width, from, std::max(pitch, width), width, lines,
                            cudaMemcpyDeviceToHost, stream),
          "a download");
    check(cudaStreamSynchronize(stream), "the work before a download");
    std::memcpy(to, through, width * lines);
  }

  slot slots_[slot_count];
  std::size_t next_ = 0;
};

class gpu_graph final : public device_graph {
 public:
  explicit gpu_graph(cudaGraph_t captured) {
    cudaError_t const made = cudaGraphInstantiate(&ready, captured, 0);
    static_cast<void>(cudaGraphDestroy(captured));
    check(made, "to make a graph of captured work");
  }
  gpu_graph(gpu_graph const&) = delete;
  gpu_graph& operator=(gpu_graph const&) = delete;
  ~gpu_graph() override { static_cast<void>(cudaGraphExecDestroy(ready)); }

  cudaGraphExec_t ready = nullptr;
};

class gpu_device final : public device {
 public:
  gpu_device(int index, qpn::device_info const& info, std::string name)
      : index_(index), info_(info), name_(std::move(name)) {
    make_current();
    check(kernels_overlap(overlap_), "to look at the kernels' code");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "to create a stream");
    pinned_ = std::make_unique<pinned_ring>();
  }
  gpu_device(gpu_device const&) = delete;
  gpu_device& operator=(gpu_device const&) = delete;
  ~gpu_device() override {
    static_cast<void>(cudaSetDevice(index_));
    static_cast<void>(cudaStreamSynchronize(stream_));
    pinned_.reset();
    static_cast<void>(cudaStreamDestroy(stream_));
    static_cast<void>(cudaFree(reserved_));
  }

  [[nodiscard]] qpn::device_info const& info() const noexcept override { return info_; }
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] bool has_clusters() const noexcept override { return overlap_; }

  [[nodiscard]] void* allocate(std::size_t bytes, std::string const& what) override {
    make_current();
    require_no_capture("an allocation");
    std::size_t const offset = ledger_.take(bytes, what);
    void* memory = nullptr;
    if (offset + bytes <= reserved_bytes_) {
      memory = reserved_ + offset;
    } else {
      try {
        memory = allocate_apart(bytes, what);
        apart_.emplace(memory, offset);
      } catch (...) {
        ledger_.give_back(offset);
        throw;
      }
    }
    cudaError_t const cleared = cudaMemsetAsync(memory, 0, bytes, stream_);
    if (cleared != cudaSuccess) release(memory);
    check(cleared, "to clear memory");
    return memory;
  }
  void release(void* memory) noexcept override {
    auto const found = apart_.find(memory);
    if (found == apart_.end()) {
      // Later work in the stream may have the place at once: it waits for the earlier one.
      ledger_.give_back(static_cast<std::size_t>(static_cast<std::byte*>(memory) - reserved_));
      return;
    }
    ledger_.give_back(found->second);
    apart_.erase(found);
    static_cast<void>(cudaSetDevice(index_));
    static_cast<void>(cudaFree(memory));
  }
  void reserve(std::size_t bytes) override {
    make_current();
    if (reserved_bytes_ > 0 || ledger_.taken() > 0) {
      throw error(error_kind::internal, "CUDA: memory was reserved after an allocation");
    }
    reserved_ = static_cast<std::byte*>(allocate_apart(bytes, "the model"));
    reserved_bytes_ = bytes;
  }
  [[nodiscard]] memory_ledger const& memory() const noexcept override { return ledger_; }

  void clear(byte_lines to, std::size_t width, std::size_t height) override {
    if (width == 0 || height == 0) return;
    make_current();
    check(cudaMemset2DAsync(to.data, std::max(to.pitch, width), 0, width, height, stream_),
          "to clear memory");
  }
  void copy(byte_lines to, byte_lines from, std::size_t width, std::size_t height) override {
    if (width == 0 || height == 0) return;
    make_current();
    check(cudaMemcpy2DAsync(to.data, std::max(to.pitch, width), from.data,
                            std::max(from.pitch, width), width, height, cudaMemcpyDeviceToDevice,
                            stream_),
          "a copy");
  }
  void upload(void* to, void const* from, std::size_t bytes) override {
    make_current();
    require_no_capture("an upload");
    waits_ += static_cast<std::uint64_t>(pinned_->upload(
        static_cast<std::byte*>(to), static_cast<std::byte const*>(from), bytes, stream_));
  }
  void download(void* to, byte_lines from, std::size_t width, std::size_t height) override {
    if (width == 0 || height == 0) return;
    make_current();
    require_no_capture("a download");
    ++waits_;
    pinned_->download(static_cast<std::byte*>(to), static_cast<std::byte const*>(from.data),
                      from.pitch, width, height, stream_);
  }
  void wait() override {
    make_current();
    require_no_capture("a wait");
    ++waits_;
    check(cudaStreamSynchronize(stream_), "the work in the stream");
  }
  [[nodiscard]] std::uint64_t waits() const noexcept override { return waits_; }

  [[nodiscard]] std::unique_ptr<device_graph> capture_alone(
      std::function<void()> const& work) override {
    make_current();
    require_no_capture("a capture");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "to begin a capture");
    cudaGraph_t captured = nullptr;
    try {
      work();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_, &captured));
      if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
      static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
      throw;
    }
    check(cudaStreamEndCapture(stream_, &captured), "to end a capture");
    return std::make_unique<gpu_graph>(captured);
  }
  void replay_alone(device_graph& graph) override {
    make_current();
    check(cudaGraphLaunch(static_cast<gpu_graph&>(graph).ready, stream_), "to launch a graph");
  }

  void launch(kernel_params const& kernel) override {
    make_current();
    check(launch_kernel(kernel, info_, overlap_, std::exchange(ahead_, {}), stream_),
          "to launch a kernel");
  }
  void read_ahead(byte_range range) noexcept override { ahead_ = range; }
  void init_workspace(linear_plan const& plan, qpn::workspace_view workspace) override {
    make_current();
    check(launch_init_workspace(plan, workspace, stream_));
  }
  void gemm(linear_plan const& plan, qpn::gemm_args const& args,
            qpn::workspace_view workspace) override {
    make_current();
    ahead_ = {};  // too late
    check(launch_gemm(plan, args, workspace, stream_));
  }
  void prepack(qpn::packed_layout const& layout, qpn::weight_part const& rows,
               std::int64_t first_row, std::byte* out, qpn::prepack_report* report) override {
    make_current();
    check(launch_prepack(layout, rows, first_row, out, report, stream_));
  }

  [[nodiscard]] std::unique_ptr<mark> make_mark() override {
    make_current();
    return std::make_unique<gpu_mark>();
  }
  void record(mark& point) override {
    make_current();
    check(cudaEventRecord(static_cast<gpu_mark&>(point).event, stream_), "to record an event");
  }
  void wait_for(mark const& point) override {
    make_current();
    check(cudaStreamWaitEvent(stream_, static_cast<gpu_mark const&>(point).event, 0),
          "to wait for another rank's event");
  }
  [[nodiscard]] int ordinal() const noexcept override { return index_; }
  void reach(device const& other) override {
    if (other.ordinal() == index_) return;
    make_current();
    int possible = 0;
    check(cudaDeviceCanAccessPeer(&possible, index_, other.ordinal()),
          "to ask for access between GPUs");
    if (possible == 0) {
      throw error(error_kind::unavailable,
                  "CUDA device " + std::to_string(index_) + " cannot reach the memory of device " +
                      std::to_string(other.ordinal()) +
                      ": expected peer access (NVLink, or PCIe without isolation)");
    }
    cudaError_t const enabled = cudaDeviceEnablePeerAccess(other.ordinal(), 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    check(enabled, "to enable access between GPUs");
  }
  [[nodiscard]] std::shared_ptr<std::uint32_t> make_host_words(std::size_t count) override {
    make_current();
    void* words = nullptr;
    check(cudaHostAlloc(&words, count * sizeof(std::uint32_t),
                        cudaHostAllocPortable | cudaHostAllocMapped),
          "to allocate pinned memory");
    std::memset(words, 0, count * sizeof(std::uint32_t));
    return {static_cast<std::uint32_t*>(words),
            [](std::uint32_t* memory) { static_cast<void>(cudaFreeHost(memory)); }};
  }
  [[nodiscard]] void* stream() const noexcept override { return stream_; }

 private:
  /// Threads have a current device each, and the engine's is not the one that loaded.
  void make_current() const { check(cudaSetDevice(index_), "to choose the GPU"); }

  [[nodiscard]] void* allocate_apart(std::size_t bytes, std::string const& what) const {
    void* memory = nullptr;
    cudaError_t const outcome = cudaMalloc(&memory, bytes);
    if (outcome == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());  // or the next launch would be blamed for it
      std::size_t free = 0;
      std::size_t total = 0;
      static_cast<void>(cudaMemGetInfo(&free, &total));
      throw out_of_memory(what, bytes, free, total, name_);
    }
    check(outcome, "to allocate memory");
    return memory;
  }

  /// The capture may be one that another rank has begun.
  void require_no_capture(char const* what) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "to ask whether a graph is captured");
    if (status == cudaStreamCaptureStatusNone) return;
    throw error(error_kind::internal,
                std::string("CUDA: ") + what + " while a graph is captured: expected none");
  }

  int index_;
  qpn::device_info info_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  bool overlap_ = false;
  byte_range ahead_;
  std::uint64_t waits_ = 0;
  std::unique_ptr<pinned_ring> pinned_;
  memory_ledger ledger_;
  std::byte* reserved_ = nullptr;
  std::size_t reserved_bytes_ = 0;
  std::map<void*, std::size_t> apart_;  ///< allocations outside, and their places in the ledger
};

void require_gpu(int index) {
  int count = 0;
  cudaError_t const counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || index < 0 || index >= count) {
    static_cast<void>(cudaGetLastError());
    std::string const found =
        counted == cudaSuccess ? std::to_string(count) + " are there" : cudaGetErrorString(counted);
    throw error(error_kind::unavailable,
                "CUDA device " + std::to_string(index) + " cannot be used: " + found);
  }
}

}  // namespace

int gpu_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::string pci_id_of_gpu(int index) {
  char id[32] = {};
  check(cudaDeviceGetPCIBusId(id, sizeof id, index), "to ask for the GPU's place on the bus");
  return id;
}

device_memory memory_of_gpu(int index) {
  require_gpu(index);
  check(cudaSetDevice(index), "to choose the GPU");
  device_memory found;
  check(cudaMemGetInfo(&found.free, &found.total), "to ask for the GPU's free memory");
  return found;
}

void require_idle(int index) {
  constexpr std::size_t limit = std::size_t{2} << 30;  // a context of ours is well below
  auto const [free, total] = memory_of_gpu(index);
  if (total - free < limit) return;
  throw error(error_kind::unavailable,
              std::to_string((total - free) >> 20) + " of " + std::to_string(total >> 20) +
                  " MiB of CUDA device " + std::to_string(index) +
                  " are in use already: expected an idle GPU, or --allow-busy-gpu");
}

std::unique_ptr<device> open_gpu(int index) {
  require_gpu(index);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "to ask for the GPU's properties");
  qpn::device_info info;
  check(qpn::query_device_info(index, info));
  return std::make_unique<gpu_device>(index, info,
                                      std::string(properties.name) + ", sm_" +
                                          std::to_string(info.compute_capability) + ", " +
                                          std::to_string(info.sm_count) + " multiprocessors");
}

}  // namespace qwen38::ops::cuda

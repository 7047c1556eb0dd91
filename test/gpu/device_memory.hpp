// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <qpn/status.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace qpn::test {

/// Throw, which fails the test: nothing of it can go on.
inline void require(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
  }
}

inline void require(status const& status) {
  if (!status.ok()) {
    throw std::runtime_error(std::string(to_string(status.code)) + ": " + status.what + ", CUDA " +
                             std::to_string(status.cuda_error));
  }
}

/// Device memory between two guards. Guards and contents start as bytes 0xff, which are NaN in
/// every format that has one: what reads them, or leaves them where it should have written, shows.
class device_memory {
 public:
  static constexpr std::size_t guard_bytes = 4096;
  static constexpr unsigned char fill = 0xff;

  explicit device_memory(std::size_t bytes) : bytes_(bytes) {
    void* base = nullptr;
    require(cudaMalloc(&base, bytes + 2 * guard_bytes));
    base_ = static_cast<std::byte*>(base);
    refill();
  }
  ~device_memory() { cudaFree(base_); }
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;

  /// A multiple of 256.
  [[nodiscard]] std::byte* data() const { return base_ + guard_bytes; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

  /// Guards and contents become as new.
  void refill() {
    require(cudaMemset(base_, fill, bytes_ + 2 * guard_bytes));
    require(cudaStreamSynchronize(nullptr));  // streams that wait for no other may use it now
  }

  void upload(void const* from, std::size_t bytes, std::size_t at = 0) {
    require(cudaMemcpy(data() + at, from, bytes, cudaMemcpyHostToDevice));
    require(cudaStreamSynchronize(nullptr));
  }
  template <class T>
  void upload(std::vector<T> const& from) {
    upload(from.data(), from.size() * sizeof(T));
  }

  [[nodiscard]] std::vector<std::byte> download() const {
    std::vector<std::byte> bytes(bytes_);
    require(cudaMemcpy(bytes.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return bytes;
  }

  [[nodiscard]] bool guards_are_intact() const {
    std::vector<std::byte> guards(2 * guard_bytes);
    require(cudaMemcpy(guards.data(), base_, guard_bytes, cudaMemcpyDeviceToHost));
    require(cudaMemcpy(guards.data() + guard_bytes, data() + bytes_, guard_bytes,
                       cudaMemcpyDeviceToHost));
    return std::all_of(guards.begin(), guards.end(),
                       [](std::byte byte) { return byte == std::byte{fill}; });
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_;
};

/// A stream that waits for no other.
class device_stream {
 public:
  device_stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~device_stream() { cudaStreamDestroy(stream_); }
  device_stream(device_stream const&) = delete;
  device_stream& operator=(device_stream const&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { require(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace qpn::test

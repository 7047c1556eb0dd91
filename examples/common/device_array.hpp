// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <qpn/status.hpp>
#include <vector>

// What the CUDA examples share: they stop at the first error, and device memory frees itself.

[[noreturn]] inline void fail(char const* kind, char const* what) {
  std::fprintf(stderr, "%s: %s\n", kind, what);
  std::exit(1);
}

inline void check(qpn::status const& status) {
  if (!status.ok()) fail(qpn::to_string(status.code), status.what);
}

inline void check(cudaError_t error) {
  if (error != cudaSuccess) fail("CUDA", cudaGetErrorString(error));
}

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

struct device_free {
  void operator()(void* memory) const { cudaFree(memory); }
};

template <class T>
using device_array = std::unique_ptr<T[], device_free>;

/// Uninitialised, 256-byte aligned: as much as any call of qpn asks for.
template <class T>
device_array<T> make_device_array(std::size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)));
  return device_array<T>(static_cast<T*>(memory));
}

template <class T>
device_array<T> to_device(std::vector<T> const& host) {
  device_array<T> memory = make_device_array<T>(host.size());
  check(cudaMemcpy(memory.get(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

template <class T>
void to_host(device_array<T> const& memory, std::vector<T>& host) {
  check(cudaMemcpy(host.data(), memory.get(), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
}

// SPDX-License-Identifier: Apache-2.0
#include "support/machine.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <utility>

#include "support/library_calls.hpp"
#include "support/read_kernel.hpp"

namespace qpn::bench {

namespace {

device_info found_device() {
  int count = 0;
  cudaError_t const error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    throw std::runtime_error(std::string("this benchmark needs a GPU, and CUDA finds none (") +
                             cudaGetErrorName(error) + ")");
  }
  device_info info;
  test::require(query_bench_device(info));
  test::require(cudaSetDevice(0));
  return info;
}

std::string pci_bus_id() {
  char text[32] = {};
  test::require(cudaDeviceGetPCIBusId(text, sizeof text, 0));
  return text;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  test::require(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

std::string mhz_text(int sm_mhz, int memory_mhz) {
  return "SM " + std::to_string(sm_mhz) + " MHz, memory " + std::to_string(memory_mhz) + " MHz";
}

std::string cuda_release(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

machine::machine() : info_(found_device()), nvml_(pci_bus_id()) {}

std::string machine::clocks_under_load() const {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  test::device_memory const memory(bytes);
  test::device_memory const sink(sizeof(std::uint32_t));
  for (int i = 0; i < 4000; ++i) {
    test::require(launch_read(memory.data(), bytes, reinterpret_cast<std::uint32_t*>(sink.data()),
                              info_.sm_count, stream()));
  }
  // The last of them still run: a stream takes no more than some thousand launches ahead.
  device_clocks const seen = clocks();
  wait();
  if (seen.sm_mhz != 0) {
    return mhz_text(seen.sm_mhz, seen.memory_mhz) + " (NVML, while the GPU reads memory)";
  }
  return mhz_text(attribute(cudaDevAttrClockRate) / 1000,
                  attribute(cudaDevAttrMemoryClockRate) / 1000) +
         " (the peak that CUDA states: NVML was not found)";
}

run_context machine::context(std::string command) const {
  cudaDeviceProp properties;
  test::require(cudaGetDeviceProperties(&properties, 0));
  int cuda_of_driver = 0;
  test::require(cudaDriverGetVersion(&cuda_of_driver));
  std::string const driver = nvml_.driver();
  run_context context;
  context.device = std::string(properties.name) + ", compute capability " +
                   std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                   ", " + std::to_string(info_.sm_count) + " multiprocessors, L2 " +
                   std::to_string(info_.l2_bytes >> 20) + " MiB";
  context.clocks = clocks_under_load();
  context.toolkit = std::string("nvcc of ") + nvcc_release() + ", driver " +
                    (driver.empty() ? "" : driver + " ") + "for CUDA " +
                    cuda_release(cuda_of_driver);
  context.command = std::move(command);
  return context;
}

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#include "support/nvml.hpp"

#include <dlfcn.h>

namespace qpn::bench {

namespace {

// Of NVML's C interface: functions return 0 where all went well.
constexpr int sm_clock = 1;
constexpr int memory_clock = 2;

template <class Function>
Function* symbol(void* library, char const* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

nvml::nvml(std::string const& pci_bus_id) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
  auto* const init = symbol<int()>(library_, "nvmlInit_v2");
  auto* const find = symbol<int(char const*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (init == nullptr || find == nullptr || init() != 0) return;
  if (find(pci_bus_id.c_str(), &device_) != 0) device_ = nullptr;
}

nvml::~nvml() {
  auto* const shutdown = symbol<int()>(library_, "nvmlShutdown");
  if (shutdown != nullptr) shutdown();
  if (library_ != nullptr) dlclose(library_);
}

device_clocks nvml::clocks() const {
  auto* const clock_of = symbol<int(void*, int, unsigned*)>(library_, "nvmlDeviceGetClockInfo");
  if (clock_of == nullptr || device_ == nullptr) return {};
  auto const mhz = [&](int kind) {
    unsigned value = 0;
    return clock_of(device_, kind, &value) == 0 ? static_cast<int>(value) : 0;
  };
  return {mhz(sm_clock), mhz(memory_clock)};
}

std::string nvml::driver() const {
  auto* const version = symbol<int(char*, unsigned)>(library_, "nvmlSystemGetDriverVersion");
  char text[96] = {};
  if (version == nullptr || version(text, sizeof text - 1) != 0) return {};
  return text;
}

}  // namespace qpn::bench

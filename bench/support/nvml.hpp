// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace qpn::bench {

/// MHz; 0: not known.
struct device_clocks {
  int sm_mhz = 0;
  int memory_mhz = 0;
};

/// What NVML, which comes with the driver, says of a GPU. It is looked for when the program runs;
/// where it is missing nothing is known. Sets nothing.
class nvml {
 public:
  /// @param pci_bus_id  as of cudaDeviceGetPCIBusId
  explicit nvml(std::string const& pci_bus_id);
  ~nvml();
  nvml(nvml const&) = delete;
  nvml& operator=(nvml const&) = delete;

  /// At this moment. An idle GPU runs slower than a busy one.
  [[nodiscard]] device_clocks clocks() const;
  /// "580.159.03", or empty.
  [[nodiscard]] std::string driver() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace qpn::bench

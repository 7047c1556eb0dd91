// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qwen38::cli {

/// Processors near a device.
struct numa_place {
  int node = -1;          ///< -1: not known, or not to be used
  std::vector<int> cpus;  ///< of the node, those that this process may run on
  std::string why_not;    ///< one sentence where there is no node
};

/// The NUMA node of a PCI device ("0000:1B:00.0", in either case) and its processors, as Linux
/// tells: bus/pci/devices/ID/numa_node and devices/system/node/nodeN/cpulist below `sysfs`.
[[nodiscard]] numa_place find_numa_place(std::string const& pci_id,
                                         std::filesystem::path const& sysfs = "/sys");

/// "0-3,8,10-11" as numbers; none of a text that is no such list.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string const& text);

/// Lets the calling thread, and threads that it starts, run on the place's processors alone, so
/// that memory they touch first is its node's. Without effect where there is no node.
/// @throws qwen38::error (internal) where the system refuses
void run_at(numa_place const& place);

/// run_at() for as long as it lives.
class numa_visit {
 public:
  explicit numa_visit(numa_place const& place);
  numa_visit(numa_visit const&) = delete;
  numa_visit& operator=(numa_visit const&) = delete;
  ~numa_visit();

 private:
  std::vector<int> before_;
};

}  // namespace qwen38::cli

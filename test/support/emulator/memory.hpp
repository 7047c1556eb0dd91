// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qpn::test {

/// What a region of global memory is for. Uses may be joined with |.
enum class region_use : unsigned {
  /// Read only; loads are counted byte by byte.
  weights = 1,
  /// Read only, not counted.
  data = 2,
  /// Write only; stores are counted byte by byte. With `data` it may be read until it is written.
  output = 4,
  /// What CTAs leave for each other: loads, stores and atomics.
  workspace = 8,
  /// Of a workspace: it holds something before the first launch, such as tickets at 0.
  initialised = 16,
};

[[nodiscard]] constexpr region_use operator|(region_use a, region_use b) {
  return static_cast<region_use>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

[[nodiscard]] constexpr bool has(region_use uses, region_use use) {
  return (static_cast<unsigned>(uses) & static_cast<unsigned>(use)) != 0;
}

/// A region of the host's memory that lanes may touch.
struct memory_region {
  std::string name;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  region_use use = region_use::data;
  /// Of a workspace: bytes that hold something. Launches that follow each other share it.
  std::vector<std::uint8_t> initialised;
};

/// The global memory of launches: nothing but its regions may be touched. An access beyond a region
/// that lands in another one of the same use is not found, so leave gaps between them.
class emulator_memory {
 public:
  /// The memory must outlive the launches; that of an output or a workspace is written. Throws
  /// std::invalid_argument for a name that is taken, a region without bytes or that overlaps
  /// another one, and a use that mixes weights, data, output and workspace in another way than
  /// data | output.
  void add_region(std::string name, void const* pointer, std::size_t bytes, region_use use);

  [[nodiscard]] std::vector<memory_region>& regions() { return regions_; }

 private:
  std::vector<memory_region> regions_;
};

}  // namespace qpn::test

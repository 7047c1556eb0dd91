// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace qpn::test {

/// Bytes at a multiple of 256, as device memory has them.
class aligned_bytes {
 public:
  explicit aligned_bytes(std::size_t size, std::byte fill = std::byte{0xcd})
      : lines_((size + sizeof(line) - 1) / sizeof(line)), size_(size) {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = fill;
  }

  [[nodiscard]] std::byte* data() { return lines_.data()->bytes; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct alignas(256) line {
    std::byte bytes[256];
  };
  std::vector<line> lines_;
  std::size_t size_;
};

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ops/cuda/device.hpp"

namespace qwen38::ops::cuda {

/// Device memory that is all 0 at first; the device must outlive it.
class device_block {
 public:
  device_block() = default;
  device_block(device& owner, std::size_t bytes, std::string const& what)
      : owner_(&owner), bytes_(bytes), data_(bytes > 0 ? owner.allocate(bytes, what) : nullptr) {}
  device_block(device_block&& other) noexcept { swap(other); }
  device_block& operator=(device_block&& other) noexcept {
    swap(other);
    return *this;
  }
  ~device_block() {
    if (data_ != nullptr) owner_->release(data_);
  }

  template <class T = std::byte>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void swap(device_block& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  device* owner_ = nullptr;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

/// Memory for `count` elements.
template <class T>
[[nodiscard]] device_block make_array(device& owner, std::int64_t count, std::string const& what) {
  return {owner, static_cast<std::size_t>(count) * sizeof(T), what};
}

/// Scratch that grows to the largest size asked for and keeps its place afterwards. What it held is
/// lost when it grows, which waits for all work, except that there was none with it before.
class scratch_block {
 public:
  template <class T>
  [[nodiscard]] T* at_least(device& owner, std::int64_t count, std::string const& what) {
    std::size_t const bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (bytes > block_.bytes()) {
      if (block_.bytes() > 0) {
        owner.wait();
        owner.note_move();
      }
      block_ = device_block();
      block_ = device_block(owner, bytes, what);
    }
    return block_.as<T>();
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return block_.bytes(); }

 private:
  device_block block_;
};

}  // namespace qwen38::ops::cuda

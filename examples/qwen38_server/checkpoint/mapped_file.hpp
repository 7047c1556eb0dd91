// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace qwen38::checkpoint {

/// A regular file, mapped read-only for as long as the object lives. The bytes stay at the same
/// address when the object is moved. Nobody may shorten the file meanwhile: a read past its new end
/// is a SIGBUS.
class mapped_file {
 public:
  /// @throws qwen38::error (not_found, io) with the path and the system's reason.
  explicit mapped_file(std::filesystem::path const& path);
  ~mapped_file();
  mapped_file(mapped_file&& other) noexcept;
  mapped_file& operator=(mapped_file&& other) noexcept;
  mapped_file(mapped_file const&) = delete;
  mapped_file& operator=(mapped_file const&) = delete;

  [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte const> bytes_;
};

/// Addresses without memory behind them: stands for bytes whose number alone matters. Reading one
/// is a SIGSEGV.
class address_range {
 public:
  /// @throws qwen38::error (io) with the system's reason.
  explicit address_range(std::size_t bytes);
  ~address_range();
  address_range(address_range const&) = delete;
  address_range& operator=(address_range const&) = delete;

  [[nodiscard]] std::span<std::byte const> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte const> bytes_;
};

/// Gives back the memory of the whole pages inside `bytes`, which lie in a mapped_file; a later
/// read brings them back from the file. Keeps a pass over a large file small.
void release_pages(std::span<std::byte const> bytes) noexcept;

}  // namespace qwen38::checkpoint

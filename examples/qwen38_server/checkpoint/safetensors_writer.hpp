// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/storage_dtype.hpp"

namespace qwen38::checkpoint {

struct tensor_info {
  std::string name;
  storage_dtype dtype = storage_dtype::u8;
  std::vector<std::int64_t> shape;
};

/// Writes one safetensors file as a stream: the tensors are declared first, then their bytes may
/// come in any order and in pieces, so that nothing larger than a piece is held in memory. Tensors
/// with larger elements are placed first and the header is padded to 8 bytes, which aligns every
/// element. The same tensors, metadata and bytes give the same file, whatever the order of the
/// pieces.
///
/// The file appears under its name only in finish(); until then, and if that is never called, there
/// is nothing but `path` + ".part", which the destructor removes.
class safetensors_writer {
 public:
  /// @throws qwen38::error: invalid_argument for a name twice or empty, a negative extent or a size
  /// that overflows; io when the system refuses.
  safetensors_writer(std::filesystem::path path, std::vector<tensor_info> tensors,
                     std::map<std::string, std::string> const& metadata = {});
  ~safetensors_writer();
  safetensors_writer(safetensors_writer const&) = delete;
  safetensors_writer& operator=(safetensors_writer const&) = delete;

  /// The next bytes of one tensor.
  /// @throws qwen38::error: invalid_argument for an undeclared tensor or more bytes than it has;
  /// io.
  void append(std::string_view tensor, std::span<std::byte const> bytes);

  /// The rest of one tensor stays zero; the file system may keep it as a hole.
  void leave_zero(std::string_view tensor);

  /// Checks that every tensor is complete and gives the file its name.
  /// @throws qwen38::error: invalid_argument naming an incomplete tensor; io.
  void finish();

 private:
  struct slot {
    std::uint64_t begin;  // in the file
    std::uint64_t bytes;
    std::uint64_t written;
  };
  slot& find(std::string_view tensor);
  void write_at(std::uint64_t offset, std::span<std::byte const> bytes);
  [[nodiscard]] std::filesystem::path part_path() const;

  std::filesystem::path path_;
  int fd_ = -1;
  std::unordered_map<std::string, slot> slots_;
};

}  // namespace qwen38::checkpoint

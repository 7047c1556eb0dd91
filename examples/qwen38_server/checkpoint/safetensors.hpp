// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/storage_dtype.hpp"

namespace qwen38::checkpoint {

/// What of a file is opened. `headers_only` takes a file whose data section is missing or cut off,
/// for looking at names and shapes: every tensor_view::bytes is then empty.
enum class open_mode { full, headers_only };

/// One tensor of a file. `bytes` points into the mapped file, row-major, little-endian, and is
/// aligned to nothing: the format does not promise alignment.
struct tensor_view {
  std::string name;
  storage_dtype dtype = storage_dtype::u8;
  std::vector<std::int64_t> shape;  ///< empty: a scalar, one element
  std::uint64_t byte_count = 0;     ///< product of shape x dtype_bytes(dtype)
  std::span<std::byte const> bytes;

  [[nodiscard]] std::uint64_t element_count() const noexcept {
    return byte_count / static_cast<std::uint64_t>(dtype_bytes(dtype));
  }
};

/// "BF16 [5120, 4]", for messages.
[[nodiscard]] std::string describe(storage_dtype dtype, std::span<std::int64_t const> shape);
[[nodiscard]] std::string describe(tensor_view const& tensor);

struct safetensors_contents {
  std::vector<tensor_view> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t header_bytes = 0;  ///< of the JSON text, padding included
  std::uint64_t data_bytes = 0;    ///< sum over tensors
};

/// Parses the image of one safetensors file: 8 bytes little-endian header length, the JSON header,
/// data.
///
/// Refused, each with one sentence that starts with `label`: a header longer than 100 MB or than
/// the file, JSON that is not of the format's form (nesting is bounded by the form: three levels),
/// a name twice, an unknown dtype or field, a size that overflows, offsets outside the file or that
/// do not fit dtype and shape. The tensors must tile the data section exactly, as the format
/// demands: no overlap, no hole, no bytes after the last one (with headers_only the end of the data
/// section is not compared).
/// @throws qwen38::error (corrupt_data, or unsupported for a dtype)
[[nodiscard]] safetensors_contents parse_safetensors(std::span<std::byte const> file,
                                                     std::string_view label, open_mode mode);

/// One open safetensors file; the tensors' bytes live as long as it (moves keep them).
class safetensors_file {
 public:
  /// @throws qwen38::error as mapped_file and parse_safetensors.
  explicit safetensors_file(std::filesystem::path const& path, open_mode mode = open_mode::full)
      : file_(path), contents_(parse_safetensors(file_.bytes(), path.string(), mode)) {}

  [[nodiscard]] std::span<tensor_view const> tensors() const noexcept { return contents_.tensors; }
  [[nodiscard]] safetensors_contents const& contents() const noexcept { return contents_; }

 private:
  mapped_file file_;
  safetensors_contents contents_;
};

}  // namespace qwen38::checkpoint

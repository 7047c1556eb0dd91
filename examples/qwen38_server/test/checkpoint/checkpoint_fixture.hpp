// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/linear.hpp"
#include "checkpoint/safetensors_writer.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint::test {

/// A fresh directory that is removed with everything in it.
class temp_directory {
 public:
  temp_directory();
  ~temp_directory();
  temp_directory(temp_directory const&) = delete;
  temp_directory& operator=(temp_directory const&) = delete;
  [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string const& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

void write_file(std::filesystem::path const& path, std::string_view text);

/// A safetensors image: 8 bytes of header length, the header as given, `data_bytes` bytes of data.
[[nodiscard]] std::string safetensors_image(std::string const& header, std::size_t data_bytes);

/// The message of the qwen38::error that `call` throws, or "" if it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (error const& failure) {
    return failure.what();
  }
  return "";
}

struct fixture_tensor {
  storage_dtype dtype = storage_dtype::bf16;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  ///< empty: all zero
};

/// A checkpoint directory in the making; tests change it before they write it.
struct checkpoint_fixture {
  std::map<std::string, fixture_tensor> tensors;
  std::map<std::string, std::string> shard_of;  ///< tensor -> file name
  nlohmann::json config;
  nlohmann::json generation;
  nlohmann::json hf_quant_config;

  /// Writes shards, index and JSON files; a JSON that is null is left out. Zero tensors become
  /// holes.
  void write(std::filesystem::path const& directory) const;
  /// The same with every shard cut off after its header.
  void write_headers_only(std::filesystem::path const& directory) const;

  void add(std::string const& name, storage_dtype dtype, std::vector<std::int64_t> shape);
  void add_f32(std::string const& name, float value);
  void add_nvfp4(std::string const& module, std::int64_t n, std::int64_t k);
  void add_fp8(std::string const& module, std::int64_t n, std::int64_t k);
  /// A copy of `value` for each element.
  template <class Element>
  void add_filled(std::string const& name, storage_dtype dtype, std::vector<std::int64_t> shape,
                  Element value) {
    std::size_t count = 1;
    for (std::int64_t const extent : shape) count *= static_cast<std::size_t>(extent);
    add(name, dtype, std::move(shape));
    std::vector<Element> const all(count, value);
    auto const bytes = std::as_bytes(std::span(all));
    tensors[name].bytes.assign(bytes.begin(), bytes.end());
  }
  void erase(std::string const& name);
};

/// RadixArk/Qwen3.8-27B-NVFP4: every tensor name, dtype and shape of the published checkpoint in
/// three shards (2194 tensors, 21,921,428,072 bytes, nearly all of them holes), with its config and
/// both quantisation documents. The vision tower's 333 names follow the family's implementation;
/// they reproduce its published size.
[[nodiscard]] checkpoint_fixture make_27b();

/// The same architecture and storage with small extents (8 layers), a few hundred kilobytes.
[[nodiscard]] checkpoint_fixture make_small();

/// The same model with every linear in BF16, all zero, without quantisation documents.
[[nodiscard]] checkpoint_fixture make_small_dense();

/// The same model as compressed-tensors stores it: NVFP4 with divisors in the MLPs of layers 0 to
/// 5; FP8 with BF16 channel scales in projections, head and the MLPs of layers 6 and 7; and its two
/// groups, whose patterns overlap on those.
[[nodiscard]] checkpoint_fixture make_small_compressed();

/// The same model in FP8 with 128x128 blocks, all of scale 1, and a BF16 head.
[[nodiscard]] checkpoint_fixture make_small_blocks();

/// The tensors, config and generation config of a checkpoint directory, without its quantisation
/// documents, which would speak of names and classes that a test changes.
[[nodiscard]] checkpoint_fixture read_checkpoint(std::filesystem::path const& directory);

/// Row-major fp32 values of a linear, decoded one by one from what would be packed.
[[nodiscard]] std::vector<float> held_values(linear_view const& linear);

}  // namespace qwen38::checkpoint::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/linear.hpp"

namespace qwen38::checkpoint {

/// How far a converter has come: bytes of the input, in the order of its files.
struct convert_progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  std::string_view tensor;
};

struct convert_options {
  std::uint64_t shard_bytes = 5'000'000'000;  ///< no file is larger
  bool overwrite = false;                     ///< replace an existing checkpoint directory
  std::function<void(convert_progress const&)> on_progress = nullptr;  ///< after each piece
};

/// What rounding did to one linear.
struct conversion_error {
  std::string module;
  quant_class cls = quant_class::nvfp4;
  double relative_rms = 0;  ///< sqrt(sum (w - q)^2 / sum w^2), 0 for a weight of zeros
  double largest = 0;       ///< max |w - q|
};

struct conversion {
  std::size_t shards = 0;
  std::size_t tensors = 0;
  std::uint64_t input_bytes = 0;         ///< of tensors
  std::uint64_t output_bytes = 0;        ///< of tensors
  std::vector<conversion_error> errors;  ///< of every quantised linear, in the order of the input
};

/// Beside the names and headers a conversion never holds more than this in memory, whatever the
/// model's size: pieces of rows, their codes, and the mapped pages that they come from. A row
/// counts as a piece, so with more than 2^20 inputs to a linear it would be more.
inline constexpr std::uint64_t convert_memory_bytes = std::uint64_t{16} << 20;

/// Writes the published mixed format of a 16-bit checkpoint: MLPs and head in NVFP4, projections of
/// attention and GDN in FP8 with a tensor scale, by ModelOpt's rules (qpn::quantize_nvfp4,
/// qpn::quantize_fp8_tensor), everything else byte for byte, MTP and vision included. Each linear
/// keeps its own global scale. There are no activation scales, which need calibration and which
/// this server does not use: the documents declare W4A16_NVFP4 and FP8.
///
/// `output` appears under its name only when it is complete: until then everything is in a fresh
/// directory beside it, which is removed on failure. The input is checked as loading does before
/// anything is written. Beside config.json with its new quantization_config, hf_quant_config.json,
/// index and shards, the other .json, .jinja and .txt files are copied.
/// @throws qwen38::error: invalid_argument for an output that exists (unless overwrite is set and
/// it holds nothing but a checkpoint's files), is the input, or a shard_bytes that a tensor does
/// not fit into; unsupported for an input that is quantised; corrupt_data for weights that are not
/// finite; io.
conversion convert_checkpoint(std::filesystem::path const& input,
                              std::filesystem::path const& output,
                              convert_options const& options = {});

/// The error of each linear, and of each class the mean and the worst.
void print_conversion(std::ostream& out, conversion const& result);

}  // namespace qwen38::checkpoint

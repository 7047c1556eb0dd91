// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/linear.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "checkpoint/ignored_tensors.hpp"
#include "checkpoint/message_text.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

constexpr std::int64_t nvfp4_group = 16;

struct foreign_suffix {
  std::string_view suffix;
  std::string_view format;
};

// Tensors that tell a format which is recognised, so that it can be refused by name.
constexpr std::array<foreign_suffix, 9> foreign_suffixes = {{
    {".weight_zero_point", "compressed-tensors' integer format"},
    {".weight_shape", "compressed-tensors' integer format"},
    {".weight_g_idx", "compressed-tensors' integer format"},
    {".pre_quant_scale", "ModelOpt's AWQ format"},
    {".qweight", "the GPTQ or AWQ format"},
    {".qzeros", "the GPTQ or AWQ format"},
    {".scales", "the GPTQ or AWQ format"},
    {".g_idx", "the GPTQ or AWQ format"},
    {".bias", "a linear layer with a bias"},
}};

// Scales of weights and of their inputs; each class has some of them and refuses the others.
constexpr std::array<std::string_view, 6> scale_suffixes = {
    ".weight_scale",     ".weight_scale_2", ".weight_global_scale",
    ".weight_scale_inv", ".input_scale",    ".input_global_scale"};

constexpr std::array<std::string_view, 10> own_suffixes = {
    ".weight",           ".weight_packed", ".weight_scale",        ".weight_scale_2",
    ".weight_scale_inv", ".input_scale",   ".weight_global_scale", ".input_global_scale",
    ".k_scale",          ".v_scale"};

constexpr auto all_suffixes = [] {
  std::array<std::string_view, own_suffixes.size() + foreign_suffixes.size()> all{};
  for (std::size_t i = 0; i < own_suffixes.size(); ++i) all[i] = own_suffixes[i];
  for (std::size_t i = 0; i < foreign_suffixes.size(); ++i) {
    all[own_suffixes.size() + i] = foreign_suffixes[i].suffix;
  }
  return all;
}();

[[noreturn]] void fail(error_kind kind, std::string const& module, std::string const& what) {
  throw error(kind, "linear " + in_quotes(module) + ": " + what);
}

// Claims whatever belongs to the module, also if it is refused afterwards: it is then accounted for
// by that error and need not be reported as left over too.
void claim_all(repository& tensors, std::string const& module) {
  for (std::string_view const suffix : all_suffixes) {
    std::string const name = module + std::string(suffix);
    if (find_ignored_rule(name) == nullptr && tensors.find(name) != nullptr) tensors.claim(name);
  }
}

void refuse_foreign(repository const& tensors, std::string const& module) {
  for (foreign_suffix const& foreign : foreign_suffixes) {
    if (tensors.find(module + std::string(foreign.suffix)) == nullptr) continue;
    fail(error_kind::unsupported, module,
         std::string(foreign.suffix.substr(1)) + " means " + std::string(foreign.format) +
             ", which is not supported; NVFP4, FP8 with tensor, channel or 128x128 block scales, "
             "BF16 and F16 are");
  }
}

void require_form(std::string const& module, tensor_view const& tensor, storage_dtype dtype,
                  std::vector<std::int64_t> const& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return;
  fail(error_kind::corrupt_data, module,
       tensor.name.substr(module.size() + 1) + " is " + describe(tensor) + ", but " +
           describe(dtype, shape) + " is expected");
}

tensor_view const& require_scale(repository const& tensors, std::string const& module,
                                 std::string_view suffix, tensor_view const& weight) {
  tensor_view const* const scale = tensors.find(module + std::string(suffix));
  if (scale == nullptr) {
    fail(error_kind::corrupt_data, module,
         std::string(suffix.substr(1)) +
             " is missing, but the weight is quantised: " + describe(weight));
  }
  return *scale;
}

// Refuses every scale but `allowed`: an extra one means that the weight was to be read differently.
void refuse_other_scales(repository const& tensors, std::string const& module,
                         tensor_view const& weight,
                         std::initializer_list<std::string_view> allowed) {
  for (std::string_view const suffix : scale_suffixes) {
    if (std::find(allowed.begin(), allowed.end(), suffix) != allowed.end()) continue;
    if (tensors.find(module + std::string(suffix)) == nullptr) continue;
    fail(error_kind::corrupt_data, module,
         std::string(suffix.substr(1)) + " is there, but a " +
             weight.name.substr(module.size() + 1) + " stored as " + describe(weight) +
             " has no such scale");
  }
}

std::string field_of(std::string const& module, tensor_view const& tensor) {
  return tensor.name.substr(module.size() + 1);
}

float scale_element(tensor_view const& scale, std::size_t index) {
  if (scale.dtype == storage_dtype::bf16) {
    std::uint16_t code = 0;
    std::memcpy(&code, scale.bytes.data() + sizeof code * index, sizeof code);
    return qpn::decode_bf16(code);
  }
  float value = 0;
  std::memcpy(&value, scale.bytes.data() + sizeof value * index, sizeof value);
  return value;
}

// All elements of an F32 or BF16 tensor of scales; ones if there are only headers.
std::vector<float> read_scales(std::string const& module, tensor_view const& scale) {
  std::vector<float> values(scale.element_count(), 1.0f);
  if (scale.bytes.empty()) return values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale_element(scale, i);
    if (std::isfinite(values[i]) && values[i] > 0) continue;
    std::string const place = values.size() == 1 ? "" : " at element " + std::to_string(i);
    fail(error_kind::corrupt_data, module,
         field_of(module, scale) + " is " + std::to_string(values[i]) + place +
             ", but a finite positive number is expected");
  }
  return values;
}

// An F32 scale of one element: shapes [] and [1] are both in use.
float read_scale(std::string const& module, tensor_view const& scale) {
  if (scale.dtype != storage_dtype::f32 || scale.element_count() != 1) {
    fail(error_kind::corrupt_data, module,
         field_of(module, scale) + " is " + describe(scale) + ", but F32 [] is expected");
  }
  return read_scales(module, scale).front();
}

void read_nvfp4(repository const& tensors, tensor_view const& weight, linear_view& linear) {
  std::string const& module = linear.module;
  bool const divides = weight.name.ends_with(".weight_packed");
  std::string_view const scale_suffix = divides ? ".weight_global_scale" : ".weight_scale_2";
  refuse_other_scales(
      tensors, module, weight,
      {".weight_scale", scale_suffix, divides ? ".input_global_scale" : ".input_scale"});
  tensor_view const& block_scales = require_scale(tensors, module, ".weight_scale", weight);
  tensor_view const& scale = require_scale(tensors, module, scale_suffix, weight);
  if (linear.k % nvfp4_group != 0) {
    fail(error_kind::unsupported, module,
         "NVFP4 needs inputs in groups of 16, but the layer has " + std::to_string(linear.k));
  }
  require_form(module, weight, storage_dtype::u8, {linear.n, linear.k / 2});
  require_form(module, block_scales, storage_dtype::f8_e4m3, {linear.n, linear.k / nvfp4_group});
  linear.cls = quant_class::nvfp4;
  linear.codes = weight.bytes;
  linear.format = qpn::format_id::nvfp4;
  linear.scales = qpn::scale_mode::tensor;
  linear.block_scales = block_scales.bytes;
  linear.scale = read_scale(module, scale);
  if (!divides) return;
  float const divisor = linear.scale;
  linear.scale = 1.0f / divisor;
  if (!std::isnormal(linear.scale)) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(divisor));
    fail(error_kind::corrupt_data, module,
         std::string("weight_global_scale is ") + text +
             ", but a divisor whose reciprocal is a normal fp32 number is expected");
  }
}

void read_fp8(repository const& tensors, tensor_view const& weight, linear_view& linear) {
  std::string const& module = linear.module;
  bool const by_inverse = tensors.find(module + ".weight_scale_inv") != nullptr;
  std::string_view const suffix = by_inverse ? ".weight_scale_inv" : ".weight_scale";
  refuse_other_scales(tensors, module, weight, {suffix, ".input_scale"});
  tensor_view const& scale = require_scale(tensors, module, suffix, weight);
  require_form(module, weight, storage_dtype::f8_e4m3, {linear.n, linear.k});
  std::vector<std::int64_t> const blocks = {scale_blocks_in(linear.n), scale_blocks_in(linear.k)};
  bool const is_number = scale.dtype == storage_dtype::f32 || scale.dtype == storage_dtype::bf16;
  bool const is_tensor = !by_inverse && scale.element_count() == 1;
  bool const is_channel = !by_inverse && (scale.shape == std::vector<std::int64_t>{linear.n, 1} ||
                                          scale.shape == std::vector<std::int64_t>{linear.n});
  if (!is_number || (!is_tensor && !is_channel && scale.shape != blocks)) {
    std::string const by_block = describe(storage_dtype::f32, blocks) + " (128x128 blocks)";
    std::string const expected =
        by_inverse ? by_block
                   : "F32 [] (tensor), " +
                         describe(storage_dtype::f32, std::vector<std::int64_t>{linear.n, 1}) +
                         " (channel) or " + by_block;
    fail(error_kind::corrupt_data, module,
         field_of(module, scale) + " is " + describe(scale) + ", but " + expected +
             ", or the same in BF16, is expected");
  }
  linear.format = qpn::format_id::fp8;
  linear.codes = weight.bytes;
  std::vector<float> scales = read_scales(module, scale);
  if (is_tensor) {
    linear.cls = quant_class::fp8_tensor;
    linear.scales = qpn::scale_mode::tensor;
    linear.scale = scales.front();
  } else if (is_channel) {
    linear.cls = quant_class::fp8_channel;
    linear.scales = qpn::scale_mode::channel;
    linear.channel_scales = std::move(scales);
  } else {
    linear.cls = quant_class::fp8_block;
    linear.scales = qpn::scale_mode::block;
    linear.scale_blocks = std::move(scales);
  }
}

void read_dense(repository const& tensors, tensor_view const& weight, linear_view& linear) {
  refuse_other_scales(tensors, linear.module, weight, {});
  require_form(linear.module, weight, weight.dtype, {linear.n, linear.k});
  bool const is_bf16 = weight.dtype == storage_dtype::bf16;
  linear.cls = is_bf16 ? quant_class::bf16 : quant_class::f16;
  linear.dense_type = is_bf16 ? qpn::dtype::bf16 : qpn::dtype::f16;
  linear.codes = weight.bytes;
}

// The one tensor that holds the codes.
tensor_view const& find_weight(repository const& tensors, std::string const& module) {
  tensor_view const* const plain = tensors.find(module + ".weight");
  tensor_view const* const packed = tensors.find(module + ".weight_packed");
  if (plain != nullptr && packed != nullptr) {
    fail(error_kind::corrupt_data, module,
         "weight and weight_packed are both there, so it is unclear which one is the weight");
  }
  if (plain == nullptr && packed == nullptr)
    fail(error_kind::corrupt_data, module, "its weight is missing from the checkpoint");
  return plain != nullptr ? *plain : *packed;
}

float element(dense_view const& dense, std::size_t index) {
  if (dense.type == qpn::dtype::f32) {
    float value = 0;
    std::memcpy(&value, dense.bytes.data() + 4 * index, sizeof value);
    return value;
  }
  std::uint16_t code = 0;
  std::memcpy(&code, dense.bytes.data() + 2 * index, sizeof code);
  return dense.type == qpn::dtype::bf16 ? qpn::decode_bf16(code) : qpn::decode_f16(code);
}

std::size_t element_count(dense_view const& dense) {
  return dense.bytes.size() / (dense.type == qpn::dtype::f32 ? 4 : 2);
}

}  // namespace

std::span<std::string_view const> linear_suffixes() noexcept {
  return all_suffixes;
}

linear_view find_linear(repository& tensors, std::string const& module, std::int64_t n,
                        std::int64_t k) {
  claim_all(tensors, module);
  refuse_foreign(tensors, module);
  tensor_view const& weight = find_weight(tensors, module);
  linear_view linear;
  linear.module = module;
  linear.n = n;
  linear.k = k;
  if (weight.name.ends_with(".weight_packed")) {
    read_nvfp4(tensors, weight, linear);
    return linear;
  }
  switch (weight.dtype) {
    case storage_dtype::u8: read_nvfp4(tensors, weight, linear); break;
    case storage_dtype::f8_e4m3: read_fp8(tensors, weight, linear); break;
    case storage_dtype::bf16:
    case storage_dtype::f16: read_dense(tensors, weight, linear); break;
    default:
      fail(error_kind::unsupported, module,
           "a weight stored as " + describe(weight) +
               " is not supported; U8 (NVFP4), F8_E4M3, BF16 and F16 are");
  }
  return linear;
}

qpn::weight_part to_part(linear_view const& linear) noexcept {
  qpn::weight_part part;
  part.n = linear.n;
  part.codes = linear.codes.data();
  part.block_scales = linear.block_scales.data();
  part.global_scale = linear.scale;
  if (!linear.channel_scales.empty()) part.channel_scales = linear.channel_scales.data();
  if (!linear.scale_blocks.empty()) part.scale_blocks = linear.scale_blocks.data();
  return part;
}

void dense_view::to_f32(std::size_t first, std::span<float> out) const {
  std::size_t const count = element_count(*this);
  if (first > count || out.size() > count - first) {
    throw error(error_kind::invalid_argument,
                "tensor " + in_quotes(name) + ": " + std::to_string(out.size()) +
                    " elements from " + std::to_string(first) + " on were asked for, but it has " +
                    std::to_string(count));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = element(*this, first + i);
    if (!std::isfinite(out[i])) {
      throw error(error_kind::corrupt_data, "tensor " + in_quotes(name) +
                                                " is NaN or infinite at element " +
                                                std::to_string(first + i));
    }
  }
}

std::vector<float> dense_view::to_f32() const {
  std::vector<float> values(element_count(*this));
  to_f32(0, values);
  return values;
}

dense_view find_dense(repository& tensors, std::string const& name,
                      std::vector<std::int64_t> const& shape) {
  tensor_view const& tensor = tensors.claim(name);
  dense_view dense{tensor.name, qpn::dtype::bf16, tensor.shape, tensor.bytes};
  bool is_number = true;
  switch (tensor.dtype) {
    case storage_dtype::bf16: break;
    case storage_dtype::f16: dense.type = qpn::dtype::f16; break;
    case storage_dtype::f32: dense.type = qpn::dtype::f32; break;
    default: is_number = false; break;
  }
  if (!is_number || tensor.shape != shape) {
    throw error(error_kind::corrupt_data, "tensor " + in_quotes(name) + " is " + describe(tensor) +
                                              ", but " + describe(storage_dtype::bf16, shape) +
                                              " (or F16, F32) is expected");
  }
  return dense;
}

}  // namespace qwen38::checkpoint

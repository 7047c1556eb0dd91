// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/linear.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

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
constexpr std::array<foreign_suffix, 13> foreign_suffixes = {{
    {".weight_packed", "compressed-tensors' packed format"},
    {".weight_global_scale", "compressed-tensors' packed format"},
    {".input_global_scale", "compressed-tensors' packed format"},
    {".weight_zero_point", "compressed-tensors' packed format"},
    {".weight_shape", "compressed-tensors' packed format"},
    {".weight_g_idx", "compressed-tensors' packed format"},
    {".weight_scale_inv", "FP8 with block scales"},
    {".pre_quant_scale", "ModelOpt's AWQ format"},
    {".qweight", "the GPTQ or AWQ format"},
    {".qzeros", "the GPTQ or AWQ format"},
    {".scales", "the GPTQ or AWQ format"},
    {".g_idx", "the GPTQ or AWQ format"},
    {".bias", "a linear layer with a bias"},
}};

constexpr std::array<std::string_view, 6> own_suffixes = {
    ".weight", ".weight_scale", ".weight_scale_2", ".input_scale", ".k_scale", ".v_scale"};

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
             ", which is not supported yet; ModelOpt NVFP4, FP8 with a tensor scale, BF16 and F16 "
             "are");
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

void refuse_scale(repository const& tensors, std::string const& module, std::string_view suffix,
                  tensor_view const& weight) {
  if (tensors.find(module + std::string(suffix)) == nullptr) return;
  fail(error_kind::corrupt_data, module,
       std::string(suffix.substr(1)) + " is there, but a weight stored as " + describe(weight) +
           " has no such scale");
}

// A scale of one element: shapes [] and [1] are both in use.
float read_scale(std::string const& module, tensor_view const& scale) {
  std::string const field = scale.name.substr(module.size() + 1);
  if (scale.dtype != storage_dtype::f32 || scale.element_count() != 1) {
    fail(error_kind::corrupt_data, module,
         field + " is " + describe(scale) + ", but F32 [] is expected");
  }
  if (scale.bytes.empty()) return 1;  // headers only
  float value = 0;
  std::memcpy(&value, scale.bytes.data(), sizeof value);
  if (!std::isfinite(value) || !(value > 0)) {
    fail(error_kind::corrupt_data, module,
         field + " is " + std::to_string(value) + ", but a finite positive number is expected");
  }
  return value;
}

void set_class(linear_view& linear, quant_class cls) {
  linear.cls = cls;
  switch (cls) {
    case quant_class::nvfp4: linear.format = qpn::format_id::nvfp4; break;
    case quant_class::fp8_tensor: linear.format = qpn::format_id::fp8; break;
    case quant_class::bf16: linear.dense_type = qpn::dtype::bf16; return;
    case quant_class::f16: linear.dense_type = qpn::dtype::f16; return;
  }
  linear.scales = qpn::scale_mode::tensor;
}

void read_nvfp4(repository const& tensors, tensor_view const& weight, linear_view& linear) {
  std::string const& module = linear.module;
  tensor_view const& block_scales = require_scale(tensors, module, ".weight_scale", weight);
  tensor_view const& scale = require_scale(tensors, module, ".weight_scale_2", weight);
  if (linear.k % nvfp4_group != 0) {
    fail(error_kind::unsupported, module,
         "NVFP4 needs inputs in groups of 16, but the layer has " + std::to_string(linear.k));
  }
  require_form(module, weight, storage_dtype::u8, {linear.n, linear.k / 2});
  require_form(module, block_scales, storage_dtype::f8_e4m3, {linear.n, linear.k / nvfp4_group});
  set_class(linear, quant_class::nvfp4);
  linear.block_scales = block_scales.bytes;
  linear.scale = read_scale(module, scale);
}

void read_fp8(repository const& tensors, tensor_view const& weight, linear_view& linear) {
  std::string const& module = linear.module;
  refuse_scale(tensors, module, ".weight_scale_2", weight);
  tensor_view const& scale = require_scale(tensors, module, ".weight_scale", weight);
  require_form(module, weight, storage_dtype::f8_e4m3, {linear.n, linear.k});
  if (scale.element_count() != 1) {
    bool const channel = scale.element_count() == static_cast<std::uint64_t>(linear.n);
    fail(error_kind::unsupported, module,
         "weight_scale is " + describe(scale) + ", which means FP8 with " +
             (channel ? "channel" : "block") + " scales, which is not supported yet");
  }
  set_class(linear, quant_class::fp8_tensor);
  linear.scale = read_scale(module, scale);
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
  tensor_view const* const weight = tensors.find(module + ".weight");
  if (weight == nullptr)
    fail(error_kind::corrupt_data, module, "its weight is missing from the checkpoint");
  linear_view linear;
  linear.module = module;
  linear.n = n;
  linear.k = k;
  switch (weight->dtype) {
    case storage_dtype::u8: read_nvfp4(tensors, *weight, linear); break;
    case storage_dtype::f8_e4m3: read_fp8(tensors, *weight, linear); break;
    case storage_dtype::bf16:
    case storage_dtype::f16:
      refuse_scale(tensors, module, ".weight_scale", *weight);
      refuse_scale(tensors, module, ".weight_scale_2", *weight);
      require_form(module, *weight, weight->dtype, {n, k});
      set_class(linear,
                weight->dtype == storage_dtype::bf16 ? quant_class::bf16 : quant_class::f16);
      break;
    default:
      fail(error_kind::unsupported, module,
           "a weight stored as " + describe(*weight) +
               " is not supported; U8 (NVFP4), F8_E4M3, BF16 and F16 are");
  }
  linear.codes = weight->bytes;
  return linear;
}

qpn::weight_part to_part(linear_view const& linear) noexcept {
  qpn::weight_part part;
  part.n = linear.n;
  part.codes = linear.codes.data();
  part.block_scales = linear.block_scales.data();
  part.global_scale = linear.scale;
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/gemm_dense_launch.hpp"
#include "gpu/gemm_launch.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"

// A GEMM call of the library on the GPU. Everything that it reads lies between NaN, everything that
// it writes between bytes that must not change.

namespace qpn::test {

[[nodiscard]] inline device_info test_device() {
  device_info device;
  require(query_test_device(device));
  return device;
}

/// The layout under test: that of the GPU's own kernels, or what QPN_TEST_LAYOUT names.
[[nodiscard]] inline layout_id tested_layout() {
  char const* const name = std::getenv("QPN_TEST_LAYOUT");
  return name != nullptr && std::string(name) == "sm70_quadpair" ? layout_id::sm70_quadpair
                                                                 : layout_for(test_device());
}

/// A published weight, packed for the GPU.
class gpu_weight {
 public:
  /// @param sm_count  multiprocessors that the layout is for; 0: those of the GPU
  explicit gpu_weight(published_weight published, int sm_count = 0, layout_id id = tested_layout())
      : published_(std::move(published)), views_(published_.views()) {
    packed_layout const& from = published_.layout();
    device_info device = test_device();
    if (sm_count != 0) device.sm_count = sm_count;
    require(make_packed_layout(from.format, from.scale, from.n, from.k, from.code_type, device, id,
                               layout_));
    packed_.resize(static_cast<std::size_t>(layout_.total_bytes));
    require(prepack(layout_, views_.data(), views_.size(), packed_.data()));
    memory_.emplace(packed_.size());
    memory_->upload(packed_);
  }

  [[nodiscard]] packed_layout const& layout() const { return layout_; }
  [[nodiscard]] packed_weight view() const { return {layout_, memory_->data()}; }
  [[nodiscard]] std::vector<std::byte> const& packed() const { return packed_; }
  [[nodiscard]] bool is_intact() const {
    return memory_->guards_are_intact() && memory_->download() == packed_;
  }

  /// The k values of a row, fp32 scale included.
  [[nodiscard]] std::vector<double> row(std::int64_t row) const {
    std::size_t part = 0;
    while (row >= views_[part].n) row -= views_[part++].n;
    std::vector<double> values(static_cast<std::size_t>(layout_.k));
    for (std::int64_t k = 0; k < layout_.k; ++k) {
      values[static_cast<std::size_t>(k)] = reference::weight_at(layout_, views_[part], row, k);
    }
    return values;
  }

 private:
  published_weight published_;
  std::vector<weight_part> views_;
  packed_layout layout_;
  std::vector<std::byte> packed_;
  std::optional<device_memory> memory_;
};

/// Random bytes; with more than one tile, two matrices with scales of their own.
[[nodiscard]] inline gpu_weight random_weight(weight_kind kind, std::int64_t n, std::int64_t k,
                                              random_source& random, int sm_count = 0,
                                              layout_id id = tested_layout()) {
  std::vector<std::int64_t> rows{n};
  if (n > tile_n) rows = {tile_n, n - tile_n};
  return gpu_weight(published_weight(kind, rows, k, random), sm_count, id);
}

/// The same in the layout of Volta, the only one that gemm_algorithm::simt reads.
[[nodiscard]] inline gpu_weight random_quadpair_weight(weight_kind kind, std::int64_t n,
                                                       std::int64_t k, random_source& random,
                                                       int sm_count = 0) {
  return random_weight(kind, n, k, random, sm_count, layout_id::sm70_quadpair);
}

/// A plan and its workspace. Calls are those of gemm_dense where the problem offers panels.
class gpu_gemm {
 public:
  gpu_gemm(gpu_weight const& weight, gemm_problem const& problem)
      : weight_(&weight), problem_(problem) {
    visit_format<int>(weight.layout().format, 0, [&](auto format) {
      gemm_plan<decltype(format)> plan;
      require(make_gemm_plan(weight.layout(), problem, test_device(), plan));
      workspace_.emplace(plan.workspace_bytes);
      require(launch_init_workspace(plan, workspace(), nullptr));
      require(cudaStreamSynchronize(nullptr));
      zero_bytes_ = plan.workspace_zero_bytes;
      columns_ = columns_of_y(plan);
      plan_ = plan;
      return 0;
    });
  }

  [[nodiscard]] gpu_weight const& weight() const { return *weight_; }
  [[nodiscard]] gemm_problem const& problem() const { return problem_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] workspace_view workspace() const {
    return {workspace_->data(), workspace_->size()};
  }

  [[nodiscard]] status launch(gemm_args const& args, cudaStream_t stream) const {
    return std::visit(
        [&](auto const& plan) {
          if (problem_.x_type == dtype::bf16) {
            return launch_gemm_bf16(plan, args, workspace(), stream);
          }
          return problem_.dense_bytes != 0 ? launch_gemm_dense(plan, args, workspace(), stream)
                                           : launch_gemm(plan, args, workspace(), stream);
        },
        plan_);
  }

  /// "sm70/nvfp4/mt2"
  [[nodiscard]] gemm_route route_of(std::int64_t m) const {
    return std::visit([m](auto const& plan) { return route(plan, m); }, plan_);
  }

  /// Whether the part that must be 0 between calls is, and nothing was written around it all.
  [[nodiscard]] bool workspace_is_clean() const {
    std::vector<std::byte> const bytes = workspace_->download();
    return workspace_->guards_are_intact() &&
           std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(zero_bytes_),
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

 private:
  gpu_weight const* weight_;
  gemm_problem problem_;
  std::variant<gemm_plan<nvfp4>, gemm_plan<fp8>, gemm_plan<dense16>> plan_;
  std::int64_t columns_ = 0;
  std::size_t zero_bytes_ = 0;
  std::optional<device_memory> workspace_;
};

/// What a call is given, on the host.
struct gemm_operands {
  std::int64_t m = 0;
  std::vector<std::uint16_t> x;  ///< f16 or bf16 [m, k]
  std::int64_t x_gap = 0;        ///< ldx - k
  std::int64_t x_shift = 0;      ///< elements from a multiple of 256 bytes
  std::vector<float> bias;       ///< [n], or empty
  std::vector<float> residual;   ///< [m, columns], exact in its type; or empty
  dtype residual_type = dtype::f32;
  bool in_place = false;  ///< y is the residual, of y's type
  bool with_y = true;
  std::int32_t first_id = 0;
  std::int32_t id_limit = std::numeric_limits<std::int32_t>::max();
};

/// Random rows of k; some of their elements are multiplied by `outlier` and clamped to 6e4, bf16 to
/// 1e30.
[[nodiscard]] inline std::vector<std::uint16_t> random_x(std::int64_t m, std::int64_t k,
                                                         random_source& random,
                                                         float outlier = 1.0F,
                                                         dtype type = dtype::f16) {
  float const most = type == dtype::f16 ? 60000.0F : 1e30F;
  std::vector<std::uint16_t> x;
  for (std::int64_t i = 0; i < m * k; ++i) {
    float const value = random.normal() * (random.integer(0, 40) == 0 ? outlier : 1.0F);
    x.push_back(detail::encode_16(std::clamp(value, -most, most), type, overflow_policy::infinite));
  }
  return x;
}

[[nodiscard]] inline gemm_operands random_operands(gpu_weight const& weight, std::int64_t m,
                                                   random_source& random, dtype type = dtype::f16) {
  gemm_operands operands;
  operands.m = m;
  operands.x = random_x(m, weight.layout().k, random, 1.0F, type);
  return operands;
}

[[nodiscard]] inline gemm_problem f32_problem(dtype x_type = dtype::f16) {
  gemm_problem problem;
  problem.x_type = x_type;
  problem.y_type = dtype::f32;
  return problem;
}

/// The element with these bits; f16 and bf16 in the lower half.
[[nodiscard]] inline float value_of(std::uint32_t bits, dtype type) {
  if (type == dtype::f32) return detail::bits_float(bits);
  return detail::decode_16(static_cast<std::uint16_t>(bits), type);
}

[[nodiscard]] inline std::uint32_t bits_of(float value, dtype type) {
  if (type == dtype::f32) return detail::float_bits(value);
  return detail::encode_16(value, type, overflow_policy::infinite);
}

/// Random values that the type holds exactly.
[[nodiscard]] inline std::vector<float> random_values(std::int64_t count, dtype type,
                                                      random_source& random) {
  std::vector<float> values = random.normals(count);
  for (float& value : values) value = value_of(bits_of(value, type), type);
  return values;
}

struct gemm_result {
  std::vector<std::uint32_t> y;             ///< bits of [m, columns]
  std::vector<std::int32_t> candidate_ids;  ///< [m][candidates]
  std::vector<float> candidate_values;
};

/// A matrix on the GPU whose rows are ld elements apart; ends with the last element.
class gpu_matrix {
 public:
  gpu_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld, dtype type,
             std::int64_t shift = 0)
      : rows_(rows), columns_(columns), ld_(ld), type_(type), shift_(shift) {
    memory_.emplace(static_cast<std::size_t>((shift + (rows - 1) * ld + columns) * element()));
  }

  [[nodiscard]] void* data() const { return memory_->data() + shift_ * element(); }
  [[nodiscard]] std::int64_t ld() const { return ld_; }
  void refill() { memory_->refill(); }

  void upload(std::vector<std::uint32_t> const& bits) {
    std::vector<std::byte> bytes = memory_->download();
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) {
      std::memcpy(bytes.data() + offset(i), &bits[static_cast<std::size_t>(i)],
                  static_cast<std::size_t>(element()));
    }
    memory_->upload(bytes);
  }

  /// Expects that all bytes outside of the matrix are as they were.
  [[nodiscard]] std::vector<std::uint32_t> download() const {
    std::vector<std::byte> bytes = memory_->download();
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(rows_ * columns_));
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) {
      std::memcpy(&bits[static_cast<std::size_t>(i)], bytes.data() + offset(i),
                  static_cast<std::size_t>(element()));
      std::memset(bytes.data() + offset(i), device_memory::fill,
                  static_cast<std::size_t>(element()));
    }
    bool const untouched = std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) {
      return byte == std::byte{device_memory::fill};
    });
    EXPECT_TRUE(untouched && memory_->guards_are_intact()) << "written outside of the rows";
    return bits;
  }

 private:
  [[nodiscard]] std::int64_t element() const { return bits(type_) / 8; }
  [[nodiscard]] std::int64_t offset(std::int64_t i) const {
    return (shift_ + i / columns_ * ld_ + i % columns_) * element();
  }

  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t ld_;
  dtype type_;
  std::int64_t shift_;
  std::optional<device_memory> memory_;
};

/// A call whose operands are on the GPU; it can be launched again and again.
class gpu_call {
 public:
  gpu_call(gpu_gemm const& gemm, gemm_operands const& operands)
      : gemm_(&gemm),
        m_(operands.m),
        x_(m_, gemm.weight().layout().k, gemm.weight().layout().k + operands.x_gap,
           gemm.problem().x_type, operands.x_shift),
        y_(m_, gemm.columns(), gemm.columns() + 3, gemm.problem().y_type),
        bias_(operands.bias.size() * sizeof(float)),
        entries_(static_cast<std::size_t>(m_ * gemm.problem().candidates)),
        ids_(entries_ * sizeof(std::int32_t)),
        values_(entries_ * sizeof(float)) {
    x_.upload({operands.x.begin(), operands.x.end()});
    args_.m = m_;
    args_.x = x_.data();
    args_.ldx = x_.ld();
    args_.weight = gemm.weight().view();
    if (operands.with_y) args_.y = y_.data();
    args_.ldy = y_.ld();
    if (!operands.bias.empty()) {
      bias_.upload(operands.bias);
      args_.bias = reinterpret_cast<float const*>(bias_.data());
    }
    if (!operands.residual.empty()) add_residual(operands);
    if (gemm.problem().candidates != 0) {
      args_.candidate_ids = reinterpret_cast<std::int32_t*>(ids_.data());
      args_.candidate_values = reinterpret_cast<float*>(values_.data());
      args_.first_id = operands.first_id;
      args_.id_limit = operands.id_limit;
    }
  }

  [[nodiscard]] gemm_args& args() { return args_; }

  /// Puts back what a launch has overwritten.
  void reset() {
    y_.refill();
    if (args_.residual == args_.y && !residual_bits_.empty()) y_.upload(residual_bits_);
  }

  void launch(cudaStream_t stream) { require(gemm_->launch(args_, stream)); }

  /// The result of a launch that is done.
  [[nodiscard]] gemm_result result() const {
    gemm_result result;
    result.y = y_.download();
    if (gemm_->problem().candidates != 0) {
      result.candidate_ids.resize(entries_);
      result.candidate_values.resize(entries_);
      std::memcpy(result.candidate_ids.data(), ids_.download().data(), ids_.size());
      std::memcpy(result.candidate_values.data(), values_.download().data(), values_.size());
      EXPECT_TRUE(ids_.guards_are_intact() && values_.guards_are_intact());
    }
    EXPECT_TRUE(gemm_->workspace_is_clean()) << "tickets or keys are left behind";
    return result;
  }

 private:
  void add_residual(gemm_operands const& operands) {
    for (float value : operands.residual) {
      residual_bits_.push_back(bits_of(value, operands.residual_type));
    }
    args_.residual_type = operands.residual_type;
    if (operands.in_place) {
      y_.upload(residual_bits_);
      args_.residual = y_.data();
      args_.ld_residual = y_.ld();
      return;
    }
    residual_.emplace(m_, gemm_->columns(), gemm_->columns() + 5, operands.residual_type);
    residual_->upload(residual_bits_);
    args_.residual = residual_->data();
    args_.ld_residual = residual_->ld();
  }

  gpu_gemm const* gemm_;
  std::int64_t m_;
  gpu_matrix x_;
  gpu_matrix y_;
  device_memory bias_;
  std::size_t entries_;  ///< of the candidate lists
  device_memory ids_;
  device_memory values_;
  std::optional<gpu_matrix> residual_;
  std::vector<std::uint32_t> residual_bits_;
  gemm_args args_;
};

/// One launch and its result.
[[nodiscard]] inline gemm_result run(gpu_gemm const& gemm, gemm_operands const& operands) {
  gpu_call call(gemm, operands);
  device_stream const stream;
  call.launch(stream.get());
  stream.wait();
  return call.result();
}

}  // namespace qpn::test

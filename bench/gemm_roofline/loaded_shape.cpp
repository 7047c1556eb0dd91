// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/loaded_shape.hpp"

#include <algorithm>

#include "support/library_calls.hpp"
#include "support/read_ceiling.hpp"
#include "support/rotation.hpp"

namespace qpn::bench::roofline {

namespace {

constexpr std::int64_t f16_bytes = 2;

std::int64_t packed_copies(model_shape const& shape, machine const& gpu) {
  return copies_of(layout_of(shape, gpu.info()).total_bytes, rotation_bytes(gpu.info().l2_bytes));
}

std::size_t dense_bytes(model_shape const& shape) {
  return static_cast<std::size_t>(f16_bytes * shape.n * shape.k);
}

}  // namespace

loaded_shape::loaded_shape(model_shape const& shape, options const& chosen, bool with_dense,
                           machine const& gpu)
    : shape_(shape),
      least_launches_(chosen.launches),
      weights_(shape, packed_copies(shape, gpu), 1, gpu),
      // Wider than the packed ones, so that they are never more.
      dense_copies_(copies_of(static_cast<std::int64_t>(dense_bytes(shape)),
                              rotation_bytes(gpu.info().l2_bytes))),
      read_us_(bench::read_us(weights_.bytes(), chosen.launches, chosen.replays, gpu)) {
  if (with_dense) dequantize_all(gpu);
}

void loaded_shape::dequantize_all(machine const& gpu) {
  dense_.emplace(static_cast<std::size_t>(dense_copies_) * dense_bytes(shape_));
  for (std::int64_t i = 0; i < dense_copies_; ++i) {
    // The last ones, so that the last copies of both kinds are the same weight.
    packed_weight const weight = weights_.copy(weights_.copies() - dense_copies_ + i);
    std::byte* const out = dense_->data() + static_cast<std::size_t>(i) * dense_bytes(shape_);
    test::require(shape_.format == format_id::nvfp4
                      ? call_dequantize<nvfp4>(weight, out, gpu.stream())
                      : call_dequantize<fp8>(weight, out, gpu.stream()));
  }
  gpu.wait();
}

std::int64_t loaded_shape::launches() const {
  return launches_of(weights_.copies(), least_launches_);
}

std::int64_t loaded_shape::dense_launches() const {
  return launches_of(dense_copies_, least_launches_);
}

void loaded_shape::launch_all(dense_gemm& gemm, activations const& with) const {
  for (std::int64_t i = 0; i < dense_launches(); ++i) {
    std::byte const* const weight =
        dense_->data() + static_cast<std::size_t>(i % dense_copies_) * dense_bytes(shape_);
    gemm.launch(with.m, shape_.n, shape_.k, with.x.data(), weight, with.y.data());
  }
}

}  // namespace qpn::bench::roofline

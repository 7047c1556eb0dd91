// SPDX-License-Identifier: Apache-2.0
#include "support/cold_weights.hpp"

#include <cmath>
#include <qpn/dtype.hpp>

#include "support/library_calls.hpp"
#include "support/random_fill.hpp"

namespace qpn::bench {

namespace {

/// A multiple of what the library asks of a weight's place.
constexpr std::size_t place_alignment = 256;

/// The root mean square of the values that `decode` gives for codes first to last.
template <class Decode>
double rms(int first, int last, Decode decode) {
  double sum = 0.0;
  for (int code = first; code <= last; ++code) {
    auto const value = static_cast<double>(decode(static_cast<std::uint8_t>(code)));
    sum += value * value;
  }
  return std::sqrt(sum / (last - first + 1));
}

/// 1 / (rms of codes times block scales, sqrt k): y is then as large as x.
float unit_scale(packed_layout const& layout) {
  double const weight = layout.format == format_id::nvfp4
                            ? rms(0, 15, decode_e2m1) * rms(1, 126, decode_e4m3)
                            : rms(0, 126, decode_e4m3);
  return static_cast<float>(1.0 / (weight * std::sqrt(static_cast<double>(layout.k))));
}

}  // namespace

packed_layout layout_of(model_shape const& shape, device_info const& device) {
  packed_layout layout;
  test::require(make_packed_layout(shape.format, scale_mode::tensor, shape.n, shape.k, dtype::f16,
                                   device, layout));
  return layout;
}

cold_weights::cold_weights(model_shape const& shape, std::int64_t copies, std::uint64_t seed,
                           machine const& gpu, float gain)
    : layout_(layout_of(shape, gpu.info())),
      copies_(copies),
      stride_((static_cast<std::size_t>(layout_.total_bytes) + place_alignment - 1) /
              place_alignment * place_alignment),
      memory_(static_cast<std::size_t>(copies) * stride_),
      codes_(static_cast<std::size_t>(shape.format == format_id::nvfp4 ? shape.n * shape.k / 2
                                                                       : shape.n * shape.k)),
      block_scales_(static_cast<std::size_t>(published_bytes(shape)) - codes_.size()) {
  published_.n = shape.n;
  published_.codes = codes_.data();
  if (block_scales_.size() != 0) published_.block_scales = block_scales_.data();
  published_.global_scale = gain * unit_scale(layout_);
  visit_format<int>(shape.format, 0, [&](auto format) {
    using Format = decltype(format);
    if constexpr (Format::id != format_id::dense16) pack_all<Format>(seed, gpu);
    return 0;
  });
}

template <class Format>
void cold_weights::pack_all(std::uint64_t seed, machine const& gpu) {
  test::device_memory report_memory(sizeof(prepack_report));
  auto* const report = reinterpret_cast<prepack_report*>(report_memory.data());
  random_bytes const codes =
      Format::id == format_id::nvfp4 ? random_bytes::any : random_bytes::e4m3;
  for (std::int64_t i = 0; i < copies_; ++i) {
    std::uint64_t const seed_of_copy = 2 * (seed * 100'000 + static_cast<std::uint64_t>(i));
    test::require(fill_random(codes, seed_of_copy, codes_.data(), codes_.size(), gpu.stream()));
    test::require(fill_random(random_bytes::positive_e4m3, seed_of_copy + 1, block_scales_.data(),
                              block_scales_.size(), gpu.stream()));
    std::byte* const out = memory_.data() + static_cast<std::size_t>(i) * stride_;
    test::require(call_prepack<Format>(layout_, published_, out, report, gpu.stream()));
    gpu.wait();
    prepack_report found;
    test::require(cudaMemcpy(&found, report, sizeof found, cudaMemcpyDeviceToHost));
    test::require(to_status(found, layout_));
  }
}

}  // namespace qpn::bench

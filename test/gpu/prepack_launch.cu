// SPDX-License-Identifier: Apache-2.0
#include "gpu/prepack_launch.hpp"

#include <cuda_runtime.h>

#include <memory>
#include <qpn/dequantize.cuh>
#include <qpn/detail/tile_map.hpp>
#include <qpn/device_info.cuh>
#include <qpn/prepack.cuh>
#include <vector>

namespace qpn::test {

namespace {

status status_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return {status_code::launch_failed, static_cast<int>(error), cudaGetErrorString(error)};
}

/// The first error of a row of calls; nothing is called after it.
class steps {
 public:
  template <class Call>
  steps& then(Call call) {
    if (result_.ok()) result_ = as_status(call());
    return *this;
  }
  [[nodiscard]] status result() const { return result_; }

 private:
  static status as_status(cudaError_t error) { return status_of(error); }
  static status as_status(status const& value) { return value; }

  status result_;
};

class device_memory {
 public:
  explicit device_memory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    // At least a byte, so that nothing that is there is null.
    error_ = cudaMalloc(&data_, bytes_ + 1);
  }
  ~device_memory() { static_cast<void>(cudaFree(data_)); }
  device_memory(device_memory const&) = delete;
  device_memory& operator=(device_memory const&) = delete;

  [[nodiscard]] cudaError_t error() const { return error_; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] cudaError_t fill(int value) {
    return error_ != cudaSuccess ? error_ : cudaMemset(data_, value, bytes_);
  }
  [[nodiscard]] cudaError_t from_host(void const* host) {
    return error_ != cudaSuccess ? error_ : cudaMemcpy(data_, host, bytes_, cudaMemcpyDefault);
  }
  [[nodiscard]] cudaError_t to_host(void* host) const {
    return error_ != cudaSuccess ? error_ : cudaMemcpy(host, data_, bytes_, cudaMemcpyDefault);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  cudaError_t error_;
};

class stream {
 public:
  stream() : error_(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) {}
  ~stream() {
    if (error_ == cudaSuccess) static_cast<void>(cudaStreamDestroy(stream_));
  }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;

  [[nodiscard]] cudaError_t error() const { return error_; }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

/// The rows of a piece in device memory.
struct device_rows {
  device_rows(packed_layout const& layout, std::int64_t n)
      : scale_block_bytes(layout.scale == scale_mode::block
                              ? ((n - 1) / scale_block + 1) * detail::scale_columns(layout) *
                                    std::int64_t{sizeof(float)}
                              : 0),
        codes(n * detail::published_row_bytes(layout)),
        block_scales(n * detail::block_scale_count(layout)),
        channel_scales(n * std::int64_t{sizeof(float)}),
        scale_blocks(scale_block_bytes),
        global_scale(sizeof(float)) {}

  std::int64_t scale_block_bytes;
  device_memory codes;
  device_memory block_scales;
  device_memory channel_scales;
  device_memory scale_blocks;
  device_memory global_scale;
};

/// Ends a capture and runs what it captured.
status run_graph(cudaStream_t capturing) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  steps all;
  all.then([&] { return cudaStreamEndCapture(capturing, &graph); })
      .then([&] { return cudaGraphInstantiate(&runnable, graph, 0); })
      .then([&] { return cudaGraphLaunch(runnable, capturing); })
      .then([&] { return cudaStreamSynchronize(capturing); });
  if (runnable != nullptr) static_cast<void>(cudaGraphExecDestroy(runnable));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return all.result();
}

status launch_prepack(packed_layout const& layout, weight_part const& rows, std::int64_t first_row,
                      std::byte* out, prepack_report* report, cudaStream_t on) {
  return visit_format<status>(layout.format, {status_code::unsupported_format}, [&](auto format) {
    return prepack_rows<decltype(format)>(layout, rows, first_row, out, report, on);
  });
}

}  // namespace

status device_info_of(int device, device_info& out) {
  return query_device_info(device, out);
}

status prepack_on_gpu(packed_layout const& layout, gpu_piece const* pieces, std::size_t count,
                      bool as_graph, std::byte* out, prepack_report& report) {
  stream on;
  device_memory packed(layout.total_bytes);
  device_memory device_report(sizeof report);
  auto* const reported = reinterpret_cast<prepack_report*>(device_report.data());
  std::vector<std::unique_ptr<device_rows>> buffers;
  std::vector<weight_part> rows;
  steps all;
  all.then([&] { return on.error(); }).then([&] { return packed.fill(0xab); }).then([&] {
    return device_report.fill(0xab);
  });
  for (std::size_t i = 0; i < count; ++i) {
    weight_part const& from = pieces[i].rows;
    buffers.push_back(std::make_unique<device_rows>(layout, from.n));
    device_rows& to = *buffers.back();
    rows.push_back({from.n, to.codes.data(), nullptr, from.global_scale, nullptr});
    all.then([&] { return to.codes.from_host(from.codes); });
    if (from.block_scales != nullptr) {
      rows.back().block_scales = to.block_scales.data();
      all.then([&] { return to.block_scales.from_host(from.block_scales); });
    }
    if (from.channel_scales != nullptr) {
      rows.back().channel_scales = reinterpret_cast<float const*>(to.channel_scales.data());
      all.then([&] { return to.channel_scales.from_host(from.channel_scales); });
    }
    if (from.scale_blocks != nullptr) {
      rows.back().scale_blocks = reinterpret_cast<float const*>(to.scale_blocks.data());
      all.then([&] { return to.scale_blocks.from_host(from.scale_blocks); });
    }
  }
  all.then([] { return cudaDeviceSynchronize(); });  // the stream does not wait for the default one
  if (as_graph) {
    all.then([&] { return cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal); });
  }
  all.then([&] { return init_prepack_report(reported, on.get()); });
  for (std::size_t i = 0; i < count; ++i) {
    all.then([&] {
      return launch_prepack(layout, rows[i], pieces[i].first_row, packed.data(), reported,
                            on.get());
    });
  }
  all.then([&] { return as_graph ? run_graph(on.get()) : status{}; })
      .then([&] { return cudaStreamSynchronize(on.get()); })
      .then([&] { return packed.to_host(out); })
      .then([&] { return device_report.to_host(&report); });
  return all.result();
}

status unpack_on_gpu(packed_weight const& weight, std::int64_t first_row, unpacked_part const& rows,
                     prepack_report& report) {
  packed_layout const& layout = weight.layout;
  stream on;
  device_memory packed(layout.total_bytes);
  device_memory device_report(sizeof report);
  auto* const reported = reinterpret_cast<prepack_report*>(device_report.data());
  device_rows to(layout, rows.n);
  bool const per_row = layout.scale == scale_mode::channel;
  unpacked_part device = {rows.n,
                          to.codes.data(),
                          to.block_scales.data(),
                          reinterpret_cast<float*>(to.global_scale.data()),
                          reinterpret_cast<float*>(to.channel_scales.data()),
                          reinterpret_cast<float*>(to.scale_blocks.data())};
  steps all;
  all.then([&] { return on.error(); })
      .then([&] { return packed.from_host(weight.data); })
      .then([&] { return to.codes.error(); })
      .then([&] { return to.block_scales.error(); })
      .then([&] { return to.channel_scales.error(); })
      .then([&] { return to.scale_blocks.error(); })
      .then([&] { return to.global_scale.error(); })
      .then([] { return cudaDeviceSynchronize(); })
      .then([&] { return init_prepack_report(reported, on.get()); })
      .then([&] {
        packed_weight const there{layout, packed.data()};
        return visit_format<status>(
            layout.format, {status_code::unsupported_format}, [&](auto format) {
              return unpack_rows<decltype(format)>(there, first_row, device, reported, on.get());
            });
      })
      .then([&] { return cudaStreamSynchronize(on.get()); })
      .then([&] { return device_report.to_host(&report); })
      .then([&] { return to.codes.to_host(rows.codes); });
  if (layout.format == format_id::nvfp4) {
    all.then([&] { return to.block_scales.to_host(rows.block_scales); });
  }
  if (per_row) all.then([&] { return to.channel_scales.to_host(rows.channel_scales); });
  if (layout.scale == scale_mode::block) {
    all.then([&] { return to.scale_blocks.to_host(rows.scale_blocks); });
  }
  if (layout.scale == scale_mode::tensor) {
    all.then([&] { return to.global_scale.to_host(rows.global_scale); });
  }
  return all.result();
}

status dequantize_on_gpu(packed_weight const& weight, std::int64_t first_row, std::int64_t rows,
                         void* out, dtype out_type, std::int64_t ldo) {
  packed_layout const& layout = weight.layout;
  stream on;
  device_memory packed(layout.total_bytes);
  device_memory values(rows * ldo * (bits(out_type) / 8));
  steps all;
  all.then([&] { return on.error(); })
      .then([&] { return packed.from_host(weight.data); })
      .then([&] { return values.from_host(out); })
      .then([] { return cudaDeviceSynchronize(); })
      .then([&] {
        packed_weight const there{layout, packed.data()};
        return visit_format<status>(
            layout.format, {status_code::unsupported_format}, [&](auto format) {
              return dequantize<decltype(format)>(there, first_row, rows, values.data(), out_type,
                                                  ldo, on.get());
            });
      })
      .then([&] { return cudaStreamSynchronize(on.get()); })
      .then([&] { return values.to_host(out); });
  return all.result();
}

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cassert>
#include <qpn/detail/candidate_key.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/device_gdn_state.hpp"
#include "ops/cuda/device_kv_cache.hpp"
#include "ops/cuda/device_linear.hpp"
#include "ops/cuda/device_pass.hpp"
#include "ops/cuda/memory.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

class device_storage final : public storage {
 public:
  explicit device_storage(device_block block) : memory(std::move(block)) {}
  device_block const memory;
};

class device_embedding final : public embedding {
 public:
  device_embedding(device& owner, std::span<std::byte const> rows, qpn::dtype type)
      : memory(owner, rows.size(), "the embedding"), is_bf16(type == qpn::dtype::bf16) {
    owner.upload(memory.as(), rows.data(), rows.size());
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override { return memory.bytes(); }
  device_block const memory;
  bool const is_bf16;
};

class device_constants final : public constants {
 public:
  device_constants(device& owner, std::span<float const> values)
      : memory_(owner, values.size_bytes(), "constants") {
    owner.upload(memory_.as(), values.data(), values.size_bytes());
  }
  [[nodiscard]] std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(memory_.bytes() / sizeof(float));
  }
  [[nodiscard]] float const* data() const noexcept { return memory_.as<float>(); }

 private:
  device_block memory_;
};

float const* values(constants const& c) {
  return static_cast<device_constants const&>(c).data();
}
device_kv_cache& as_device(kv_cache& cache) {
  return static_cast<device_kv_cache&>(cache);
}
device_gdn_state& as_device(gdn_state& state) {
  return static_cast<device_gdn_state&>(state);
}

float const* stream_rows(tensor const& x) {
  assert(x.type == qpn::dtype::f32);
  return static_cast<float const*>(x.data);
}
output_rows output_of(tensor const& y) {
  return {y.data, y.stride, y.type == qpn::dtype::f16};
}

class cuda_backend final : public backend {
 public:
  cuda_backend(std::unique_ptr<device> gpu, cuda_options const& options)
      : gpu_(std::move(gpu)), options_(options) {}

  [[nodiscard]] std::string name() const override { return gpu_->name(); }
  [[nodiscard]] std::vector<route_count> routes() const override {
    std::vector<route_count> taken;
    for (int i = 0; i < qpn::gemm_route_count; ++i) {
      qpn::gemm_route const route = qpn::route_at(i);
      if (std::uint64_t const count = census_.launches(route); count > 0) {
        taken.push_back({qpn::route_name(route), count});
      }
    }
    return taken;
  }

  std::unique_ptr<storage> make_tensor(row_kind kind, std::int64_t rows, std::int64_t cols,
                                       tensor& view) override {
    bool const half = kind == row_kind::activation;
    std::int64_t const unit = half ? 8 : 4;  // 16 bytes: products read rows fastest so
    std::int64_t const stride = divide_up(cols, unit) * unit;
    auto memory = std::make_unique<device_storage>(
        device_block(*gpu_, static_cast<std::size_t>(rows * stride * (half ? 2 : 4)), "a tensor"));
    view = {memory->memory.as(), half ? qpn::dtype::f16 : qpn::dtype::f32, rows, cols, stride};
    return memory;
  }
  std::unique_ptr<embedding> make_embedding(std::span<std::byte const> rows, qpn::dtype type,
                                            std::int64_t) override {
    return std::make_unique<device_embedding>(*gpu_, rows, type);
  }
  std::unique_ptr<linear> make_linear(linear_source const& source) override {
    auto made = std::make_unique<device_linear>(*gpu_, source, staging_);
    workspace_.add(made->plan());
    return made;
  }
  std::unique_ptr<constants> make_constants(std::span<float const> numbers) override {
    return std::make_unique<device_constants>(*gpu_, numbers);
  }
  std::unique_ptr<kv_cache> make_kv_cache(attention_shape const& shape, std::int64_t layers,
                                          std::int64_t pages) override {
    return std::make_unique<device_kv_cache>(*gpu_, shape, layers, pages, options_.attention_sums);
  }
  std::unique_ptr<gdn_state> make_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                            std::int64_t lanes, std::int64_t max_tentative_rows,
                                            std::int64_t snapshots) override {
    return std::make_unique<device_gdn_state>(*gpu_, shape, layers, lanes, max_tentative_rows,
                                              snapshots);
  }
  std::unique_ptr<pass> make_pass(pass_limits const& limits) override {
    return std::make_unique<device_pass>(*gpu_, limits);
  }
  void set_pass(pass& p, pass_rows const& rows) override { static_cast<device_pass&>(p).set(rows); }

  void embed(embedding const& table, pass const& p, tensor y) override {
    auto const& of = static_cast<device_embedding const&>(table);
    embed_params kernel;
    kernel.table = of.memory.as<std::uint16_t>();
    kernel.is_bf16 = of.is_bf16;
    kernel.ids = cuda::as_device(p).view().ids;
    kernel.y = output_of(y);
    kernel.rows = cuda::as_device(p).id_count();
    kernel.cols = y.cols;
    gpu_->launch(kernel);
  }
  void rms_norm(tensor x, constants const& w, float eps, tensor y) override {
    assert(w.size() == x.cols && y.cols == x.cols);
    rms_norm_params kernel;
    kernel.x = stream_rows(x);
    kernel.x_stride = x.stride;
    kernel.w = values(w);
    kernel.eps = eps;
    kernel.y = output_of(y);
    kernel.rows = x.rows;
    kernel.cols = x.cols;
    gpu_->launch(kernel);
  }
  void matmul(linear const& w, tensor x, tensor y, bool accumulate) override {
    assert(x.cols == w.k() && y.cols == w.n() && y.rows == x.rows);
    multiply(w, x, y, accumulate);
  }
  void gate_up(linear const& w, tensor x, tensor y) override {
    assert(x.cols == w.k() && 2 * y.cols == w.n() && y.rows == x.rows);
    multiply(w, x, y, false);
  }
  void copy(tensor x, tensor y) override { copy_rows(x, nullptr, x.rows, y); }
  void move_rows(pass const& p, int list, tensor x, tensor y) override {
    device_pass const& of = cuda::as_device(p);
    copy_rows(x, of.view().moves[list], of.move_count(list), y);
  }
  void argmax(tensor x, std::int64_t valid, std::span<ranked_id> best) override {
    argmax_params kernel;
    std::size_t const bytes = best.size() * sizeof(std::uint64_t);
    kernel.x = stream_rows(x);
    kernel.x_stride = x.stride;
    kernel.rows = std::ssize(best);
    kernel.valid = valid;
    kernel.keys = argmax_keys_.at_least<std::uint64_t>(*gpu_, std::max(kernel.rows, least_keys),
                                                       "the best ids");
    gpu_->clear({kernel.keys, bytes}, bytes, 1);
    gpu_->launch(kernel);
    std::vector<std::uint64_t> keys(best.size());
    gpu_->download(keys.data(), {kernel.keys, bytes}, bytes, 1);
    for (std::size_t r = 0; r < best.size(); ++r) {
      best[r] = {qpn::detail::candidate_value(keys[r]), qpn::detail::candidate_id(keys[r])};
    }
  }

  void store_kv(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                constants const& k_norm) override {
    as_device(cache).store(layer, cuda::as_device(p), kv, values(k_norm));
  }
  void attention(kv_cache const& cache, std::int64_t layer, pass const& p, tensor q_gate,
                 constants const& q_norm, tensor out) override {
    static_cast<device_kv_cache const&>(cache).attend(layer, cuda::as_device(p), q_gate,
                                                      values(q_norm), output_of(out));
  }
  void gdn(gdn_state& state, std::int64_t layer, pass const& p, tensor qkvz, tensor ba,
           gdn_weights const& w, tensor out) override {
    as_device(state).run(layer, cuda::as_device(p), qkvz, ba,
                         {values(*w.conv), values(*w.a_log), values(*w.dt_bias), values(*w.norm)},
                         output_of(out));
  }
  void gdn_keep(gdn_state& state, int lane, std::int64_t rows) override {
    as_device(state).keep(lane, rows);
  }
  void gdn_reset(gdn_state& state, int lane) override { as_device(state).reset(lane); }
  void gdn_save(gdn_state& state, int lane, std::int64_t snapshot) override {
    as_device(state).save(lane, snapshot);
  }
  void gdn_load(gdn_state& state, int lane, std::int64_t snapshot) override {
    as_device(state).load(lane, snapshot);
  }

  void read(tensor x, std::span<float> out) override {
    std::size_t const element = x.type == qpn::dtype::f16 ? 2 : 4;
    byte_lines const from{x.data, static_cast<std::size_t>(x.stride) * element};
    std::size_t const width = static_cast<std::size_t>(x.cols) * element;
    auto const height = static_cast<std::size_t>(x.rows);
    if (element == 4) {
      gpu_->download(out.data(), from, width, height);
      return;
    }
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(x.rows * x.cols));
    gpu_->download(halves.data(), from, width, height);
    for (std::size_t i = 0; i < halves.size(); ++i) out[i] = qpn::decode_f16(halves[i]);
  }

 private:
  static constexpr std::int64_t least_keys = 128;  ///< so that the place does not move

  void multiply(linear const& w, tensor const& x, tensor const& y, bool accumulate) {
    static_cast<device_linear const&>(w).multiply(*gpu_, workspace_, x, y, accumulate, census_);
  }
  void copy_rows(tensor const& x, row_move const* moves, std::int64_t rows, tensor const& y) {
    assert(x.cols == y.cols);
    copy_rows_params kernel;
    kernel.x = stream_rows(x);
    kernel.x_stride = x.stride;
    kernel.moves = moves;
    kernel.y = output_of(y);
    kernel.rows = rows;
    kernel.cols = x.cols;
    gpu_->launch(kernel);
  }

  std::unique_ptr<device> gpu_;
  cuda_options options_;
  scratch_block staging_;
  shared_workspace workspace_;
  scratch_block argmax_keys_;
  qpn::gemm_census census_;
};

}  // namespace

std::unique_ptr<backend> make_backend(std::unique_ptr<device> gpu, cuda_options const& options) {
  return std::make_unique<cuda_backend>(std::move(gpu), options);
}

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cuda_backend.hpp"

#include <algorithm>
#include <cassert>
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

class device_recording final : public recording {
 public:
  std::unique_ptr<device_graph> graph;
  qpn::gemm_census launches;  ///< of products, in one replay
  std::uint64_t moves = 0;    ///< of the device's scratch, before it was captured
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
  [[nodiscard]] float const* data() const noexcept override { return memory_.as<float>(); }

 private:
  device_block memory_;
};

float const* values(constants const& c) {
  return c.data();
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
  return {y.data, y.stride, y.type == qpn::dtype::f16, y.fragments ? y.cols : 0};
}

class cuda_backend final : public backend {
 public:
  cuda_backend(std::shared_ptr<device> gpu, cuda_options const& options)
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
  [[nodiscard]] std::string attention_route() const override { return attention_route_; }
  [[nodiscard]] work_counts counts() const override {
    return {gpu_->waits(), recordings_, replays_};
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
    made->add_to(workspace_);
    return made;
  }
  std::unique_ptr<constants> make_constants(std::span<float const> numbers) override {
    return std::make_unique<device_constants>(*gpu_, numbers);
  }
  std::unique_ptr<kv_cache> make_kv_cache(attention_shape const& shape, std::int64_t layers,
                                          std::int64_t pages) override {
    auto made = std::make_unique<device_kv_cache>(*gpu_, shape, layers, pages, options_);
    attention_route_ = made->route();
    return made;
  }
  std::unique_ptr<gdn_state> make_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                            std::int64_t lanes, std::int64_t max_tentative_rows,
                                            std::int64_t snapshots) override {
    return std::make_unique<device_gdn_state>(*gpu_, shape, layers, lanes, max_tentative_rows,
                                              snapshots, options_.gdn_in_one_launch);
  }
  std::unique_ptr<storage> make_tokens(std::int64_t count, token_list& view) override {
    auto memory =
        std::make_unique<device_storage>(make_array<ranked_id>(*gpu_, count, "chosen tokens"));
    view = {memory->memory.as<ranked_id>(), static_cast<std::size_t>(count)};
    return memory;
  }
  std::vector<std::unique_ptr<pass>> make_passes(std::span<pass_limits const> limits) override {
    return pass_block::make_passes(*gpu_, limits);
  }
  void set_passes(std::span<pass_setting const> settings) override {
    if (!settings.empty()) static_cast<device_pass&>(*settings.front().into).block().set(settings);
  }

  [[nodiscard]] bool records() const noexcept override { return true; }
  std::unique_ptr<recording> record(std::function<void()> const& work) override {
    auto made = std::make_unique<device_recording>();
    qpn::gemm_census const before = std::exchange(census_, {});
    try {
      made->graph = gpu_->capture(work);
    } catch (...) {
      census_ = before;
      throw;
    }
    made->launches = std::exchange(census_, before);
    made->moves = gpu_->moves();
    ++recordings_;
    return made;
  }
  void replay(recording& recorded) override {
    auto& of = static_cast<device_recording&>(recorded);
    if (of.moves != gpu_->moves()) {
      throw error(error_kind::internal, "CUDA: recorded work uses scratch that has moved since");
    }
    gpu_->replay(*of.graph);
    for (int i = 0; i < qpn::gemm_route_count; ++i) {
      census_.launched[i] += of.launches.launched[i];
    }
    ++replays_;
  }

  void embed(embedding const& table, pass const& p, token_list tokens, tensor y) override {
    auto const& of = static_cast<device_embedding const&>(table);
    embed_params kernel;
    kernel.table = of.memory.as<std::uint16_t>();
    kernel.is_bf16 = of.is_bf16;
    kernel.ids = cuda::as_device(p).view().ids;
    kernel.tokens = tokens.data();
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
  void read_ahead(linear const& w, std::size_t most_bytes) override {
    gpu_->read_ahead(static_cast<device_linear const&>(w).first_bytes(most_bytes));
  }
  [[nodiscard]] tensor input_rows(linear const& w, tensor x, std::int64_t rows) const override {
    assert(x.cols == w.k() && x.type == qpn::dtype::f16);
    tensor input = x.slice_rows(0, rows);
    input.fragments = static_cast<device_linear const&>(w).takes_fragments(rows) &&
                      qpn::x_fragments_count(rows, x.cols) <= x.rows * x.stride;
    return input;
  }
  void matmul(linear const& w, tensor x, tensor y, bool accumulate) override {
    assert(x.cols == w.k() && y.cols == w.n() && y.rows == x.rows);
    multiply(w, x, y, accumulate);
  }
  void matmul_two(tensor x, linear const& w, tensor y, linear const& w2, tensor y2) override {
    matmul(w, x, y, false);
    assert(x.cols == w2.k() && y2.cols == w2.n() && y2.rows == x.rows);
    multiply(w2, x, y2, false, true);
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
  void best_tokens(linear const& w, tensor x, std::int32_t first_id, std::int32_t end_id,
                   token_list best) override {
    assert(x.cols == w.k() && x.rows == std::ssize(best));
    device_linear::best_rows const rows{
        best_ids_.at_least<std::int32_t>(*gpu_, qpn::gemm_max_m, "the best ids"),
        best_values_.at_least<float>(*gpu_, qpn::gemm_max_m, "the best ids"), first_id, end_id};
    static_cast<device_linear const&>(w).choose(*gpu_, workspace_, x, rows, census_);
    pack_tokens_params kernel;
    kernel.values = rows.values;
    kernel.ids = rows.ids;
    kernel.tokens = best.data();
    kernel.count = std::ssize(best);
    gpu_->launch(kernel);
  }

  void choose_tokens(pass const& p, token_list tokens, tensor logits, std::int32_t valid,
                     token_list chosen) override {
    pass_view const& rows = cuda::as_device(p).view();
    choose_params kernel;
    kernel.choices = rows.choices;
    kernel.spans = rows.spans;
    kernel.row_spans = rows.row_spans;
    kernel.ids = rows.ids;
    kernel.seen = rows.seen;
    kernel.tokens = tokens.data();
    kernel.rows = cuda::as_device(p).choice_count();
    kernel.logits = static_cast<float*>(logits.data);
    kernel.stride = logits.stride;
    kernel.valid = valid;
    kernel.chosen = chosen.data();
    assert(logits.type == qpn::dtype::f32);
    assert(kernel.rows == std::ssize(chosen) && kernel.rows <= logits.rows);
    gpu_->launch(kernel);
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
  void store_and_attend(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                        constants const& k_norm, tensor q_gate, constants const& q_norm,
                        tensor out) override {
    as_device(cache).store_and_attend(layer, cuda::as_device(p), kv, values(k_norm), q_gate,
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
  void read(token_list tokens, std::span<ranked_id> out) override {
    gpu_->download(out.data(), {tokens.data(), tokens.size_bytes()}, tokens.size_bytes(), 1);
  }

 private:
  void multiply(linear const& w, tensor const& x, tensor const& y, bool accumulate,
                bool beside = false) {
    static_cast<device_linear const&>(w).multiply(*gpu_, workspace_, x, y, accumulate, beside,
                                                  census_);
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

  std::shared_ptr<device> gpu_;
  cuda_options options_;
  scratch_block staging_;
  shared_workspace workspace_;
  scratch_block best_ids_;
  scratch_block best_values_;
  std::string attention_route_;
  qpn::gemm_census census_;
  std::uint64_t recordings_ = 0;
  std::uint64_t replays_ = 0;
};

}  // namespace

std::unique_ptr<backend> make_backend(std::shared_ptr<device> gpu, cuda_options const& options) {
  return std::make_unique<cuda_backend>(std::move(gpu), options);
}

}  // namespace qwen38::ops::cuda

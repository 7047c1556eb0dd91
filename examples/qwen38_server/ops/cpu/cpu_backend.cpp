// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_backend.hpp"

#include <algorithm>
#include <cstring>
#include <qpn/cpu/gemm.hpp>
#include <string>
#include <string_view>

#include "ops/cpu/context.hpp"
#include "ops/cpu/kernels.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cpu {
namespace {

void check(qpn::status const& status, std::string_view what) {
  if (status.ok()) return;
  std::string message = std::string(what) + ": " + status.what;
  if (status.row >= 0)
    message +=
        " (row " + std::to_string(status.row) + ", column " + std::to_string(status.column) + ")";
  throw error(error_kind::corrupt_data, message);
}

class cpu_storage final : public storage {
 public:
  explicit cpu_storage(std::size_t count) : memory(count) {}
  zeroed_array<float> const memory;
};

class cpu_linear final : public linear {
 public:
  explicit cpu_linear(linear_source const& source) {
    std::int64_t n = 0;
    for (qpn::weight_part const& part : source.parts) n += part.n;
    qpn::packed_layout layout;
    check(qpn::make_packed_layout(source.format, source.scales, n, source.k, source.dense_type,
                                  layout),
          source.name);
    bytes_ =
        std::make_unique<zeroed_array<std::byte>>(static_cast<std::size_t>(layout.total_bytes));
    check(qpn::prepack(layout, source.parts.data(), source.parts.size(), bytes_->data()),
          source.name);
    packed_ = {layout, bytes_->data()};
  }
  [[nodiscard]] std::int64_t n() const noexcept override { return packed_.layout.n; }
  [[nodiscard]] std::int64_t k() const noexcept override { return packed_.layout.k; }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override { return bytes_->bytes(); }
  [[nodiscard]] qpn::packed_weight const& packed() const noexcept { return packed_; }

 private:
  std::unique_ptr<zeroed_array<std::byte>> bytes_;
  qpn::packed_weight packed_;
};

class cpu_backend final : public backend {
 public:
  explicit cpu_backend(int threads) : pool_(threads) {}

  std::unique_ptr<storage> make_tensor(std::int64_t rows, std::int64_t cols,
                                       tensor& view) override {
    auto memory = std::make_unique<cpu_storage>(static_cast<std::size_t>(rows * cols));
    view = {memory->memory.data(), qpn::dtype::f32, rows, cols, cols};
    return memory;
  }
  std::unique_ptr<linear> make_linear(linear_source const& source) override {
    return std::make_unique<cpu_linear>(source);
  }
  std::unique_ptr<constants> make_constants(std::span<float const> values) override {
    return std::make_unique<cpu_constants>(values);
  }
  std::unique_ptr<kv_cache> make_kv_cache(attention_shape const& shape, std::int64_t layers,
                                          std::int64_t pages) override {
    return make_cpu_kv_cache(shape, layers, pages);
  }
  std::unique_ptr<gdn_state> make_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                            std::int64_t lanes, std::int64_t max_tentative_rows,
                                            std::int64_t snapshots) override {
    return make_cpu_gdn_state(shape, layers, lanes, max_tentative_rows, snapshots);
  }

  void embed(std::byte const* table, qpn::dtype table_type, std::span<std::int32_t const> ids,
             tensor y) override {
    for (std::size_t r = 0; r < ids.size(); ++r) {
      std::byte const* const source = table + 2 * static_cast<std::int64_t>(ids[r]) * y.cols;
      float* const target = row(y, static_cast<std::int64_t>(r));
      for (std::int64_t i = 0; i < y.cols; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, source + 2 * i, sizeof bits);
        target[i] = table_type == qpn::dtype::bf16 ? qpn::decode_bf16(bits) : qpn::decode_f16(bits);
      }
    }
  }

  void rms_norm(tensor x, constants const& w, float eps, tensor y) override {
    assert(w.size() == x.cols && y.cols == x.cols);
    for_each_index(pool_, x.rows, [&](std::int64_t r) {
      rms_norm_row(row(x, r), values(w), x.cols, eps, true, row(y, r));
    });
  }

  void matmul(linear const& w, tensor x, tensor y, bool accumulate) override {
    assert(x.cols == w.k() && y.cols == w.n() && y.rows == x.rows);
    qpn::cpu::gemm_args args;
    args.x = x.data;
    args.x_type = x.type;
    args.ldx = x.stride;
    args.m = x.rows;
    args.y = y.data;
    args.y_type = y.type;
    args.ldy = y.stride;
    args.accumulate = accumulate;
    check(qpn::cpu::gemm(static_cast<cpu_linear const&>(w).packed(), args, pool_),
          "matrix product");
  }

  void silu_mul(tensor gate_up, tensor y) override {
    assert(gate_up.cols == 2 * y.cols);
    for_each_index(pool_, y.rows, [&](std::int64_t r) {
      float const* const gate = row(gate_up, r);
      float* const target = row(y, r);
      for (std::int64_t i = 0; i < y.cols; ++i) target[i] = silu(gate[i]) * gate[y.cols + i];
    });
  }

  void gather_rows(tensor x, std::span<std::int64_t const> rows, tensor y) override {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(row(x, rows[i]), x.cols, row(y, static_cast<std::int64_t>(i)));
    }
  }

  void argmax(tensor x, std::int64_t valid, std::span<std::int32_t> ids) override {
    for (std::size_t r = 0; r < ids.size(); ++r) {
      float const* const logits = row(x, static_cast<std::int64_t>(r));
      ids[r] = static_cast<std::int32_t>(std::max_element(logits, logits + valid) - logits);
    }
  }

  void store_kv(kv_cache& cache, std::int64_t layer, std::int64_t slot_offset,
                std::span<row_span const> spans, tensor kv, constants const& k_norm) override {
    cpu_store_kv(pool_, cache, layer, slot_offset, spans, kv, k_norm);
  }
  void attention(kv_cache const& cache, std::int64_t layer, std::int64_t slot_offset,
                 std::span<row_span const> spans, tensor q_gate, constants const& q_norm,
                 tensor out) override {
    cpu_attention(pool_, cache, layer, slot_offset, spans, q_gate, q_norm, out);
  }
  void gdn(gdn_state& state, std::int64_t layer, std::span<row_span const> spans, tensor qkvz,
           tensor ba, gdn_weights const& w, tensor out) override {
    cpu_gdn(pool_, state, layer, spans, qkvz, ba, w, out);
  }
  void gdn_keep(gdn_state& state, int lane, std::int64_t rows) override {
    cpu_gdn_keep(pool_, state, lane, rows);
  }
  void gdn_reset(gdn_state& state, int lane) override { cpu_gdn_reset(state, lane); }
  void gdn_save(gdn_state& state, int lane, std::int64_t snapshot) override {
    cpu_gdn_save(state, lane, snapshot);
  }
  void gdn_load(gdn_state& state, int lane, std::int64_t snapshot) override {
    cpu_gdn_load(state, lane, snapshot);
  }

  void read(tensor x, std::span<float> out) override {
    for (std::int64_t r = 0; r < x.rows; ++r)
      std::copy_n(row(x, r), x.cols, out.data() + r * x.cols);
  }

 private:
  qpn::cpu::thread_pool pool_;
};

}  // namespace

std::unique_ptr<backend> make_backend(int threads) {
  return std::make_unique<cpu_backend>(threads);
}

}  // namespace qwen38::ops::cpu

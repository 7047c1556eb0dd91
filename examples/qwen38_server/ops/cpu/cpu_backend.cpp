// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_backend.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <qpn/cpu/gemm.hpp>
#include <qpn/detail/candidate_key.hpp>
#include <qpn/gemm_route.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ops/cpu/context.hpp"
#include "ops/cpu/kernels.hpp"
#include "ops/cpu/token_mass.hpp"
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

class cpu_tokens final : public storage {
 public:
  explicit cpu_tokens(std::size_t count) : tokens(count) {}
  std::vector<ranked_id> tokens;
};

/// Stays where the caller has it.
class cpu_embedding final : public embedding {
 public:
  cpu_embedding(std::byte const* table, qpn::dtype of) : rows(table), type(of) {}
  [[nodiscard]] std::size_t resident_bytes() const noexcept override { return 0; }
  std::byte const* const rows;
  qpn::dtype const type;
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
  [[nodiscard]] qpn::packed_layout const& layout() const noexcept override {
    return packed_.layout;
  }
  [[nodiscard]] qpn::packed_weight const& packed() const noexcept { return packed_; }

 private:
  std::unique_ptr<zeroed_array<std::byte>> bytes_;
  qpn::packed_weight packed_;
};

class cpu_backend final : public backend {
 public:
  cpu_backend(int threads, qpn::cpu::isa path) : pool_(threads), path_(path) {}

  [[nodiscard]] std::string name() const override { return "CPU"; }
  [[nodiscard]] std::vector<route_count> routes() const override {
    std::vector<route_count> taken;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      if (launches_[i] == 0) continue;
      qpn::cpu::isa const set = path_ == qpn::cpu::isa::automatic ? qpn::cpu::best_isa() : path_;
      taken.push_back(
          {std::string("cpu/") + to_string(set) + '/' + qpn::detail::gemm_operand_names[i],
           launches_[i]});
    }
    return taken;
  }
  [[nodiscard]] work_counts counts() const override { return {}; }
  [[nodiscard]] std::string attention_route() const override { return "cpu/fp32"; }

  std::unique_ptr<storage> make_tensor(row_kind, std::int64_t rows, std::int64_t cols,
                                       tensor& view) override {
    auto memory = std::make_unique<cpu_storage>(static_cast<std::size_t>(rows * cols));
    view = {memory->memory.data(), qpn::dtype::f32, rows, cols, cols};
    return memory;
  }
  std::unique_ptr<embedding> make_embedding(std::span<std::byte const> rows, qpn::dtype type,
                                            std::int64_t) override {
    return std::make_unique<cpu_embedding>(rows.data(), type);
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

  std::unique_ptr<storage> make_tokens(std::int64_t count, token_list& view) override {
    auto memory = std::make_unique<cpu_tokens>(static_cast<std::size_t>(count));
    view = memory->tokens;
    return memory;
  }
  std::vector<std::unique_ptr<pass>> make_passes(std::span<pass_limits const> limits) override {
    std::vector<std::unique_ptr<pass>> made;
    for (pass_limits const& one : limits) made.push_back(std::make_unique<cpu_pass>(one));
    return made;
  }
  void set_passes(std::span<pass_setting const> settings) override {
    for (pass_setting const& one : settings) static_cast<cpu_pass&>(*one.into).set(one.rows);
  }

  [[nodiscard]] bool records() const noexcept override { return false; }
  std::unique_ptr<recording> record(std::function<void()> const&) override {
    throw error(error_kind::internal, "record: the CPU backend keeps no operations");
  }
  void replay(recording&) override {
    throw error(error_kind::internal, "replay: the CPU backend keeps no operations");
  }

  void embed(embedding const& table, pass const& p, token_list tokens, tensor y) override {
    auto const& of = static_cast<cpu_embedding const&>(table);
    std::span<std::int32_t const> const ids = as_cpu(p).ids();
    for (std::size_t r = 0; r < ids.size(); ++r) {
      std::int32_t const id = ids[r] >= 0 ? ids[r] : tokens[static_cast<std::size_t>(~ids[r])].id;
      std::byte const* const source =
          of.rows + 2 * static_cast<std::int64_t>(std::max(id, 0)) * y.cols;
      float* const target = row(y, static_cast<std::int64_t>(r));
      for (std::int64_t i = 0; i < y.cols; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, source + 2 * i, sizeof bits);
        target[i] = of.type == qpn::dtype::bf16 ? qpn::decode_bf16(bits) : qpn::decode_f16(bits);
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
    args.path = path_;
    check(qpn::cpu::gemm(static_cast<cpu_linear const&>(w).packed(), args, pool_),
          "matrix product");
    ++launches_[static_cast<std::size_t>(qpn::operand_of(w.layout().code_type))];
  }

  void gate_up(linear const& w, tensor x, tensor y) override {
    assert(w.n() == 2 * y.cols);
    tensor const products = multiply(w, x);
    for_each_index(pool_, y.rows, [&](std::int64_t r) {
      float const* const gate = row(products, r);
      float* const target = row(y, r);
      for (std::int64_t i = 0; i < y.cols; ++i) target[i] = silu(gate[i]) * gate[y.cols + i];
    });
  }

  void best_tokens(linear const& w, tensor x, std::int32_t first_id, std::int32_t end_id,
                   token_list best) override {
    tensor const logits = multiply(w, x);
    std::int64_t const valid = std::min<std::int64_t>(w.n(), std::int64_t{end_id} - first_id);
    for_each_index(pool_, std::ssize(best), [&](std::int64_t r) {
      std::uint64_t key = qpn::detail::no_candidate;
      for (std::int64_t j = 0; j < valid; ++j) {
        auto const id = static_cast<std::uint32_t>(first_id + j);
        key = std::max(key, qpn::detail::candidate_key(row(logits, r)[j], id));
      }
      best[static_cast<std::size_t>(r)] = {qpn::detail::candidate_value(key),
                                           qpn::detail::candidate_id(key)};
    });
  }

  void copy(tensor x, tensor y) override {
    for (std::int64_t r = 0; r < x.rows; ++r) std::copy_n(row(x, r), x.cols, row(y, r));
  }

  void move_rows(pass const& p, int list, tensor x, tensor y) override {
    for (row_move const& move : as_cpu(p).moves(list)) {
      std::copy_n(row(x, move.from), x.cols, row(y, move.to));
    }
  }

  void choose_tokens(pass const& p, token_list tokens, tensor logits, std::int32_t valid,
                     token_list chosen) override {
    for (row_span const& span : as_cpu(p).spans()) penalise(as_cpu(p), span, tokens, logits, valid);
    std::span<row_choice const> const choices = as_cpu(p).choices();
    for (std::size_t r = 0; r < choices.size(); ++r) {
      std::span<float const> const of(row(logits, static_cast<std::int64_t>(r)),
                                      static_cast<std::size_t>(valid));
      chosen[r] = choose_token(of, choices[r], candidates_);
    }
  }

  void store_kv(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                constants const& k_norm) override {
    cpu_store_kv(pool_, cache, layer, as_cpu(p), kv, k_norm);
  }
  void attention(kv_cache const& cache, std::int64_t layer, pass const& p, tensor q_gate,
                 constants const& q_norm, tensor out) override {
    cpu_attention(pool_, cache, layer, as_cpu(p), q_gate, q_norm, out);
  }
  void gdn(gdn_state& state, std::int64_t layer, pass const& p, tensor qkvz, tensor ba,
           gdn_weights const& w, tensor out) override {
    cpu_gdn(pool_, state, layer, as_cpu(p).spans(), qkvz, ba, w, out);
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
  void read(token_list tokens, std::span<ranked_id> out) override {
    std::ranges::copy(tokens, out.begin());
  }

 private:
  /// x W^T in memory of the backend's own.
  tensor multiply(linear const& w, tensor const& x) {
    products_.resize(static_cast<std::size_t>(x.rows * w.n()));
    tensor const products{products_.data(), qpn::dtype::f32, x.rows, w.n(), w.n()};
    matmul(w, x, products, false);
    return products;
  }

  /// The penalties of a span's rows, by what was seen up to each.
  void penalise(cpu_pass const& p, row_span const& span, token_list tokens, tensor const& logits,
                std::int32_t valid) {
    counts_.clear();
    for (token_count const& one : span.seen) counts_.emplace(one.id, one.count);
    for (std::int64_t i = 0; i < span.rows; ++i) {
      auto const r = static_cast<std::size_t>(span.first_row + i);
      if (i > 0 && r < p.ids().size()) {
        std::int32_t const id = p.ids()[r];
        ++counts_[id >= 0 ? id : tokens[static_cast<std::size_t>(~id)].id];
      }
      if (r >= p.choices().size() || !p.choices()[r].how.penalties.any()) continue;
      float* const of = row(logits, static_cast<std::int64_t>(r));
      for (auto const& [id, count] : counts_) {
        if (id < 0 || id >= valid) continue;
        of[id] = penalised_logit(of[id], p.choices()[r].how.penalties, count);
      }
    }
  }

  qpn::cpu::thread_pool pool_;
  qpn::cpu::isa path_;
  std::vector<float> products_;
  // Of choose_tokens().
  std::vector<candidate> candidates_;
  std::unordered_map<std::int32_t, std::int32_t> counts_;
  std::array<std::uint64_t, qpn::detail::gemm_operand_count> launches_{};
};

}  // namespace

void cpu_pass::set(pass_rows const& rows) {
  std::int64_t count = 0;
  std::int64_t seen = 0;
  for (row_span const& span : rows.spans) {
    count += span.rows;
    seen += std::ssize(span.seen);
  }
  if (rows.size) {
    throw error(error_kind::internal, "pass: the CPU backend fills none up, it records nothing");
  }
  bool fits = count <= limits_.rows && std::ssize(rows.spans) <= limits_.spans &&
              std::ssize(rows.ids) <= limits_.rows && std::ssize(rows.choices) <= limits_.choices &&
              seen <= limits_.seen;
  for (auto const& list : rows.moves) fits = fits && std::ssize(list) <= limits_.moves;
  if (!fits) throw error(error_kind::internal, "pass: more rows, spans or moves than its limits");
  spans_.assign(rows.spans.begin(), rows.spans.end());
  ids_.assign(rows.ids.begin(), rows.ids.end());
  choices_.assign(rows.choices.begin(), rows.choices.end());
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    moves_[i].assign(rows.moves[i].begin(), rows.moves[i].end());
  }
  slot_offset_ = rows.slot_offset;
}

std::unique_ptr<backend> make_backend(int threads, qpn::cpu::isa path) {
  return std::make_unique<cpu_backend>(threads, path);
}

}  // namespace qwen38::ops::cpu

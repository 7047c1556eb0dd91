// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <qpn/format.hpp>
#include <qpn/gemm_types.hpp>
#include <qpn/packed_weight.hpp>
#include <qpn/prepack.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/pass.hpp"
#include "ops/tensor.hpp"

/// The operations a model is written against, once for every device.
///
/// Promise kept by every backend: rows are independent. A row's result is the same bits whatever
/// else is in the call, but for products of more than qpn::gemm_max_m rows, which may depend on how
/// many there are; and attention results do not depend on how earlier tokens were cut into calls.
/// Nor do recurrent ones, if final rows that fill a chunk of 64 tokens, on absolute borders, come
/// in calls that begin on such a border: a backend may compute the chunk at once.
namespace qwen38::ops {

/// Memory of the backend.
class storage {
 public:
  virtual ~storage() = default;
};

/// A matrix y = x W^T, with W [n, k] in a packed low-bit or 16-bit format.
class linear {
 public:
  virtual ~linear() = default;
  [[nodiscard]] virtual std::int64_t n() const noexcept = 0;
  [[nodiscard]] virtual std::int64_t k() const noexcept = 0;
  [[nodiscard]] virtual std::size_t resident_bytes() const noexcept = 0;
  /// How its one copy is kept.
  [[nodiscard]] virtual qpn::packed_layout const& layout() const noexcept = 0;
};

/// fp32 constants: norm weights, convolution taps, gates.
class constants {
 public:
  virtual ~constants() = default;
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// In the memory of the backend.
  [[nodiscard]] virtual float const* data() const noexcept = 0;
};

/// 16-bit rows of the vocabulary.
class embedding {
 public:
  virtual ~embedding() = default;
  /// 0 where the rows stay in the caller's memory.
  [[nodiscard]] virtual std::size_t resident_bytes() const noexcept = 0;
};

/// What a linear is multiplied for.
enum class linear_use : std::uint8_t {
  product,  ///< matmul()
  gate_up,  ///< gate_up(): the first half of the rows are gates
  head,     ///< matmul() and best_tokens()
};

struct linear_source {
  std::string_view name;  ///< for messages
  qpn::format_id format = qpn::format_id::dense16;
  qpn::dtype dense_type = qpn::dtype::bf16;
  qpn::scale_mode scales = qpn::scale_mode::none;
  std::int64_t k = 0;
  std::span<qpn::weight_part const> parts;  ///< fused along n, each keeping its own scales
  linear_use use = linear_use::product;
  /// Most rows of a matmul() or gate_up(). Beyond qpn::gemm_max_m a row's bits may depend on how
  /// many there are.
  std::int64_t most_rows = qpn::gemm_max_m;
};

struct attention_shape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;
  double rope_theta = 0;
  float eps = 0;
};

/// Keys and values of all attention layers: fp16, stored with saturation, in pages of
/// kv_page_tokens slots [layer][page][kv head][slot][head_dim]. A page belongs to the sequences
/// whose row_span lists it.
class kv_cache {
 public:
  virtual ~kv_cache() = default;
  [[nodiscard]] virtual std::size_t resident_bytes() const noexcept = 0;
};

struct gdn_shape {
  std::int64_t num_key_heads = 0;
  std::int64_t num_value_heads = 0;
  std::int64_t key_dim = 0;    ///< per head
  std::int64_t value_dim = 0;  ///< per head
  std::int64_t conv_kernel = 0;
  float eps = 0;

  [[nodiscard]] std::int64_t key_channels() const noexcept { return num_key_heads * key_dim; }
  [[nodiscard]] std::int64_t value_channels() const noexcept { return num_value_heads * value_dim; }
  /// q | k | v, the channels that pass the convolution.
  [[nodiscard]] std::int64_t conv_channels() const noexcept {
    return 2 * key_channels() + value_channels();
  }
};

/// Recurrent state of all GDN layers and lanes: fp32 S [value head][key_dim][value_dim] and the
/// last conv_kernel - 1 raw columns, plus the record of each lane's latest tentative rows, plus
/// places for copies of a lane's state.
class gdn_state {
 public:
  virtual ~gdn_state() = default;
  [[nodiscard]] virtual std::size_t resident_bytes() const noexcept = 0;
};

struct gdn_weights {
  constants const* conv = nullptr;     ///< [conv_channels, conv_kernel], last tap = current token
  constants const* a_log = nullptr;    ///< [num_value_heads]
  constants const* dt_bias = nullptr;  ///< [num_value_heads]
  constants const* norm = nullptr;     ///< [value_dim], plain weight (no + 1)
};

/// Launches of one route of a product since the backend was made.
struct route_count {
  std::string route;
  std::uint64_t launches = 0;
};

/// What a backend did since it was made.
struct work_counts {
  std::uint64_t waits = 0;       ///< times that the host waited for the device
  std::uint64_t recordings = 0;  ///< made
  std::uint64_t replays = 0;
};

/// Operations that can be done again: with the same tensors, and passes set anew to the same sizes.
class recording {
 public:
  virtual ~recording() = default;
};

class backend {
 public:
  virtual ~backend() = default;
  /// "CPU", or the GPU's name, architecture and size.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Routes that products have taken, e.g. "sm70/nvfp4/mt2" or "cpu/avx2/nvfp4".
  [[nodiscard]] virtual std::vector<route_count> routes() const = 0;
  /// How attention is computed, e.g. "cpu/fp32".
  [[nodiscard]] virtual std::string attention_route() const = 0;
  [[nodiscard]] virtual work_counts counts() const = 0;

  // Memory. Everything is zero when handed out. Where there is not enough, an error names what
  // for.
  virtual std::unique_ptr<storage> make_tensor(row_kind kind, std::int64_t rows, std::int64_t cols,
                                               tensor& view) = 0;
  /// `rows`: bf16 or f16 [vocabulary, cols], on any byte of host memory that outlives the result.
  virtual std::unique_ptr<embedding> make_embedding(std::span<std::byte const> rows,
                                                    qpn::dtype type, std::int64_t cols) = 0;
  virtual std::unique_ptr<linear> make_linear(linear_source const& source) = 0;
  virtual std::unique_ptr<constants> make_constants(std::span<float const> values) = 0;
  virtual std::unique_ptr<kv_cache> make_kv_cache(attention_shape const& shape, std::int64_t layers,
                                                  std::int64_t pages) = 0;
  virtual std::unique_ptr<gdn_state> make_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                                    std::int64_t lanes,
                                                    std::int64_t max_tentative_rows,
                                                    std::int64_t snapshots) = 0;
  virtual std::unique_ptr<storage> make_tokens(std::int64_t count, token_list& view) = 0;
  /// Passes that are set together.
  virtual std::vector<std::unique_ptr<pass>> make_passes(std::span<pass_limits const> limits) = 0;

  /// What the operations that follow, up to the next set_passes() of these passes, find in them;
  /// all were made by one make_passes(), and of the others nothing is known afterwards. Lists of
  /// pages and of ids seen must stay as they are until then.
  virtual void set_passes(std::span<pass_setting const> settings) = 0;

  [[nodiscard]] std::unique_ptr<pass> make_pass(pass_limits const& limits) {
    return std::move(make_passes({&limits, 1}).front());
  }
  void set_pass(pass& p, pass_rows const& rows) {
    pass_setting const setting{&p, rows};
    set_passes({&setting, 1});
  }

  /// Whether record() may be called.
  [[nodiscard]] virtual bool records() const noexcept = 0;
  /// Keeps the operations that `work` calls, without doing them. All of them must have been done
  /// before with passes of the same limits. None may need the host: no reads, no set_passes().
  virtual std::unique_ptr<recording> record(std::function<void()> const& work) = 0;
  virtual void replay(recording& recorded) = 0;

  /// y[r, :] = table[id of row r, :], where ids may be those of `tokens`: see id_in_place(). No id
  /// is read as id 0.
  virtual void embed(embedding const& table, pass const& p, token_list tokens, tensor y) = 0;
  /// y = x * rsqrt(mean(x^2) + eps) * (1 + w), fp32.
  virtual void rms_norm(tensor x, constants const& w, float eps, tensor y) = 0;
  /// The first `rows` rows of x, of kind activation, in the order in which products with w read
  /// them fastest: for an operation that writes them and such products, and nothing else.
  [[nodiscard]] virtual tensor input_rows(linear const& /*w*/, tensor x, std::int64_t rows) const {
    return x.slice_rows(0, rows);
  }
  /// y = x W^T, or y += x W^T; x of kind activation, y of kind stream.
  virtual void matmul(linear const& w, tensor x, tensor y, bool accumulate) = 0;
  /// y = x W^T and y2 = x W2^T: matmul twice, which a device may do at once.
  virtual void matmul_two(tensor x, linear const& w, tensor y, linear const& w2, tensor y2) {
    matmul(w, x, y, false);
    matmul(w2, x, y2, false);
  }
  /// Says that a product with w follows the next operation, so that the first bytes of w may be
  /// fetched where that leaves memory idle. Changes no result.
  virtual void read_ahead(linear const& /*w*/, std::size_t /*most_bytes*/) {}
  /// y = silu(x Wg^T) * x Wu^T, with Wg and Wu the halves of w, made for linear_use::gate_up; x and
  /// y of kind activation.
  virtual void gate_up(linear const& w, tensor x, tensor y) = 0;
  /// y = x, as y's kind holds it; x of kind stream.
  virtual void copy(tensor x, tensor y) = 0;
  /// Row `to` of y becomes row `from` of x, as y's kind holds it, for each move of a list; x of
  /// kind stream. No row is both written and read.
  virtual void move_rows(pass const& p, int list, tensor x, tensor y) = 0;
  /// best[r] = the largest element of row r of x W^T whose column j has first_id + j < end_id, as
  /// id first_id + j: the lowest of equal ones, but one that is no number before all. W made for
  /// linear_use::head; x of kind activation, a row for each place of `best`.
  virtual void best_tokens(linear const& w, tensor x, std::int32_t first_id, std::int32_t end_id,
                           token_list best) = 0;

  /// chosen[r] as token_choice says from the first `valid` (>= 1) columns of row r, and its logit;
  /// a row for each choice of the pass. Penalties go by row_span::seen and the ids of the span's
  /// rows, which may be those of `tokens`: see id_in_place(). They may be left in `logits`. A logit
  /// that is no number or +infinity is chosen before all others; -infinity only where there is
  /// nothing else.
  virtual void choose_tokens(pass const& p, token_list tokens, tensor logits, std::int32_t valid,
                             token_list chosen) = 0;

  /// kv = [k | v] rows. k: norm with (1 + w) over each head, RoPE; both are written to the cache.
  /// RoPE's position is the row's, without the slot offset.
  virtual void store_kv(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                        constants const& k_norm) = 0;
  /// q_gate: per head head_dim query values, then head_dim gate values. q: norm with (1 + w), RoPE;
  /// causal softmax attention over the sequence's pages, scale head_dim^-1/2; out = attention *
  /// sigmoid(gate), of kind activation. Slots below the slot offset hold nothing and are not read.
  /// The order of every sum depends on the slot alone, not on pages.
  virtual void attention(kv_cache const& cache, std::int64_t layer, pass const& p, tensor q_gate,
                         constants const& q_norm, tensor out) = 0;
  /// store_kv and then attention, which a device may do with fewer launches.
  virtual void store_and_attend(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                                constants const& k_norm, tensor q_gate, constants const& q_norm,
                                tensor out) {
    store_kv(cache, layer, p, kv, k_norm);
    attention(cache, layer, p, q_gate, q_norm, out);
  }

  /// Gated DeltaNet mixer of one layer, from projections to the gated norm.
  /// qkvz = [q | k | v | z] rows, ba = [b | a] rows, out [rows, value_channels] of kind activation.
  virtual void gdn(gdn_state& state, std::int64_t layer, pass const& p, tensor qkvz, tensor ba,
                   gdn_weights const& w, tensor out) = 0;
  /// Folds the first `rows` rows of the lane's record into its state, in all layers, and forgets
  /// the record.
  virtual void gdn_keep(gdn_state& state, int lane, std::int64_t rows) = 0;
  virtual void gdn_reset(gdn_state& state, int lane) = 0;
  /// Copies the lane's state to a snapshot's place; there must be no record to keep.
  virtual void gdn_save(gdn_state& state, int lane, std::int64_t snapshot) = 0;
  /// Makes a snapshot the lane's state; a record is forgotten.
  virtual void gdn_load(gdn_state& state, int lane, std::int64_t snapshot) = 0;

  /// Host copy of rows of either kind, in fp32; waits for the work before it.
  virtual void read(tensor x, std::span<float> out) = 0;
  virtual void read(token_list tokens, std::span<ranked_id> out) = 0;
};

}  // namespace qwen38::ops

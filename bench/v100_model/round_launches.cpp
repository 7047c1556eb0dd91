// SPDX-License-Identifier: Apache-2.0
#include "round_launches.hpp"

#include <utility>

#include "round_kernels.hpp"

namespace qpn::bench::v100 {

namespace {

/// Weights of one layer of full attention, and of its MLP.
struct layer_formats {
  format_id projections;
  format_id mlp;
};

constexpr layer_formats of_target{format_id::fp8, format_id::nvfp4};
constexpr layer_formats of_mtp{format_id::dense16, format_id::dense16};

class launch_list {
 public:
  launch_list(rank_model const& model, round_shape const& shape) : model_(model), shape_(shape) {}

  std::vector<round_launch> make() {
    std::int64_t const rows = shape_.drafts + 1;
    if (shape_.drafts > 0) {
      settle();
      phase_ = round_phase::drafts;
      times_ = shape_.drafts - 1;  // the first draft has the last settled row's
      mtp_inputs(1);
      times_ = shape_.drafts;
      draft();
    }
    phase_ = round_phase::verify;
    times_ = 1;
    verify(rows);
    if (shape_.drafts > 0) {
      phase_ = round_phase::keep;
      add("gdn_replay", round_part::gdn, rows, gdn_replay_work(model_, rows));
      add("gdn_shift", round_part::gdn, rows, gdn_shift_work(model_, model_.gdn_layers, true));
    }
    return std::move(launches_);
  }

 private:
  void add(char const* kernel, round_part part, std::int64_t rows, kernel_work const& work) {
    if (times_ == 0) return;
    launches_.push_back({kernel, phase_, part, times_, rows, {}, work});
  }
  void add_product(char const* what, format_id format, std::int64_t n, std::int64_t k,
                   std::int64_t rows, round_part part = round_part::products) {
    if (times_ == 0) return;
    dtype const code = format == format_id::nvfp4 ? dtype::e2m1
                       : format == format_id::fp8 ? dtype::e4m3
                                                  : dtype::bf16;
    launches_.push_back(
        {"gemm", phase_, part, times_, rows, {what, format, code, n, k, false}, {}});
  }
  void add_norm(std::int64_t rows) {
    add("rms_norm", round_part::rows, rows, rms_norm_work(rows, model_.hidden));
  }
  void add_copy(std::int64_t rows, bool has_moves) {
    add("copy_rows", round_part::rows, rows, copy_rows_work(rows, model_.hidden, has_moves));
  }
  /// The ranks' sum into the residual stream with the next norm; one rank's product has added.
  void add_sum(std::int64_t rows) {
    if (model_.ranks == 1) return add_norm(rows);
    add("peer_reduce", round_part::exchange, rows, peer_reduce_work(model_, rows));
  }

  /// @param one_product  of queries, gates, keys and values
  void attention(layer_formats const& formats, bool one_product, std::int64_t rows) {
    std::int64_t const h = model_.hidden;
    std::int64_t const q = model_.heads * model_.head_dim;
    std::int64_t const slots = shape_.context + rows;
    std::int64_t const kv = model_.kv_heads * model_.head_dim;
    if (one_product) {
      add_product("q, gate, k, v", formats.projections, 2 * q + 2 * kv, h, rows);
    } else {
      add_product("q, gate", formats.projections, 2 * q, h, rows);
      add_product("k, v", formats.projections, 2 * kv, h, rows);
    }
    add("prepare_heads", round_part::attention, rows, prepare_heads_work(model_, rows));
    add("attention_simt", round_part::attention, rows, attention_work(model_, rows, slots));
    add("attention_output", round_part::attention, rows,
        attention_output_work(model_, rows, slots));
    add_product("o_proj", formats.projections, h, q, rows);
    add_sum(rows);
  }
  void gdn(std::int64_t rows) {
    bool const keeps = shape_.drafts == 0;
    std::int64_t const h = model_.hidden;
    std::int64_t const value = model_.value_channels();
    add_product("in_proj qkvz", of_target.projections, model_.conv_channels() + value, h, rows);
    add_product("in_proj b, a", format_id::dense16, 2 * model_.value_heads, h, rows);
    if (is_gdn_short(model_, rows)) {
      add("gdn_short", round_part::gdn, rows, gdn_short_work(model_, rows, keeps));
    } else {
      add("gdn_prepare", round_part::gdn, rows, gdn_prepare_work(model_, rows));
      add("gdn_recurrence", round_part::gdn, rows, gdn_recurrence_work(model_, rows, keeps));
      add("gdn_norm", round_part::gdn, rows, gdn_norm_work(model_, rows));
      add("gdn_shift", round_part::gdn, rows, gdn_shift_work(model_, 1, keeps));
    }
    add_product("out_proj", of_target.projections, h, value, rows);
    add_sum(rows);
  }
  void mlp(format_id format, std::int64_t rows) {
    add_product("gate_up", format, 2 * model_.intermediate, model_.hidden, rows);
    add_product("down", format, model_.hidden, model_.intermediate, rows);
    add_sum(rows);
  }
  void choose_best(std::int64_t rows) {
    add_product("lm_head", format_id::nvfp4, model_.vocabulary, model_.hidden, rows,
                round_part::head);
    add("pack_tokens", round_part::head, rows, pack_tokens_work());
    if (model_.ranks == 1) return;
    add("peer_gather", round_part::exchange, rows, gather_ids_work(rows));
    add("best_of_ranks", round_part::exchange, rows, best_of_ranks_work(model_));
  }

  void mtp_inputs(std::int64_t rows) {
    add("embed", round_part::rows, rows, embed_work(rows, model_.hidden));
    add_norm(rows);
    add_norm(rows);
    // Every rank has all of it.
    add_product("MTP fc", of_mtp.projections, model_.hidden, 2 * model_.hidden, rows);
  }
  void settle() {
    std::int64_t const rows = shape_.settled;
    phase_ = round_phase::settle;
    times_ = 1;
    add_copy(rows, true);
    mtp_inputs(rows);
    add_norm(rows);
    add_product("k, v", of_mtp.projections, 2 * model_.kv_heads * model_.head_dim, model_.hidden,
                rows);
    add("store_kv", round_part::attention, rows, store_kv_work(model_, rows));
    add_copy(1, true);
  }
  void draft() {
    add_norm(1);
    attention(of_mtp, false, 1);
    mlp(of_mtp.mlp, 1);
    add_copy(1, false);
    choose_best(1);
  }
  void verify(std::int64_t rows) {
    add("embed", round_part::rows, rows, embed_work(rows, model_.hidden));
    add_norm(rows);
    times_ = model_.gdn_layers;
    gdn(rows);
    times_ = model_.full_layers;
    attention(of_target, true, rows);
    times_ = model_.gdn_layers + model_.full_layers;
    mlp(of_target.mlp, rows);
    times_ = 1;
    add_copy(rows, true);
    add_copy(rows, false);
    choose_best(rows);
  }

  rank_model const& model_;
  round_shape const& shape_;
  round_phase phase_ = round_phase::verify;
  std::int64_t times_ = 1;
  std::vector<round_launch> launches_;
};

}  // namespace

rank_model qwen38_27b_at_tp4() noexcept {
  rank_model model;
  model.ranks = 4;
  model.hidden = 5120;
  model.gdn_layers = 48;
  model.full_layers = 16;
  model.heads = 24 / 4;
  model.kv_heads = 4 / 4;
  model.head_dim = 256;
  model.key_heads = 16 / 4;
  model.value_heads = 48 / 4;
  model.key_dim = 128;
  model.value_dim = 128;
  model.conv_taps = 4;
  model.intermediate = 17408 / 4;
  model.vocabulary = 248320 / 4;
  return model;
}

std::vector<round_launch> round_launches(rank_model const& model, round_shape const& shape) {
  return launch_list(model, shape).make();
}

}  // namespace qpn::bench::v100

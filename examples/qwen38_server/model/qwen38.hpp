// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/config.hpp"
#include "checkpoint/repository.hpp"
#include "model/causal_lm.hpp"
#include "model/weights.hpp"
#include "ops/backend.hpp"
#include "parallel/communicator.hpp"

namespace qwen38::model {

struct qwen38_options {
  std::int32_t valid_ids = 0;  ///< ids the tokenizer knows; rows of the head beyond are padding
  std::int32_t lanes = 1;
  std::int64_t max_context = 4096;
  std::int32_t kv_pages = 0;   ///< 0: as many as all lanes need for max_context tokens each
  std::int32_t snapshots = 0;  ///< places for the states of the prefix cache
  /// Rows of a prefill pass, which begins at a multiple of this: 64 or a multiple of it. More of
  /// them read the weights less often, and take longer between two rounds of what else runs.
  std::int32_t prefill_pass = 64;
  bool self_check = false;  ///< compare packed products with the published weights: load_weights
  /// This model's end of the group of ranks that it is one of, each with its slice of the weights;
  /// null: alone.
  std::shared_ptr<parallel::communicator> ranks = nullptr;
  load_progress on_progress = nullptr;  ///< while weights are packed
};

/// Bytes of one snapshot's place.
[[nodiscard]] std::size_t snapshot_bytes(checkpoint::model_config const& config);

/// The Qwen3.5/3.6/3.8 text model: Gated DeltaNet and gated full-attention layers, and the MTP
/// drafter. Written once against ops::backend and parallel::communicator. One of several ranks
/// holds only its heads, columns and ids, of weights and of state alike; its forward() returns
/// logits on rank 0 alone.
class qwen38_model final : public causal_lm {
 public:
  qwen38_model(std::shared_ptr<checkpoint::repository> files, checkpoint::model_config config,
               std::unique_ptr<ops::backend> backend, qwen38_options const& options);
  ~qwen38_model() override;

  [[nodiscard]] limits const& get_limits() const noexcept override { return limits_; }
  void begin(int lane, std::span<std::int32_t const> pages) override;
  void save(int lane, std::int32_t snapshot) override;
  void resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
              std::int64_t position) override;
  std::span<float const> forward(std::span<sequence_rows const> batch) override;
  void round(std::span<round_lane const> batch, std::span<round_result> results) override;
  void keep(int lane, std::int64_t rows) override;
  void draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) override;

  /// Bytes that stay resident: packed weights, KV cache, recurrent state with its snapshots.
  struct memory_use {
    std::size_t weights = 0;
    std::size_t kv_cache = 0;
    std::size_t gdn_state = 0;
  };
  [[nodiscard]] memory_use get_memory_use() const noexcept;
  /// The routes that the rank's products have taken so far.
  [[nodiscard]] std::vector<ops::route_count> routes() const { return backend_->routes(); }
  [[nodiscard]] std::string attention_route() const { return backend_->attention_route(); }
  /// The rank's linears, as they were packed.
  [[nodiscard]] std::vector<linear_record> const& linears() const noexcept {
    return weights_.linears;
  }
  [[nodiscard]] ops::work_counts counts() const { return backend_->counts(); }

  /// Called with the fp32 rows [rows, hidden] after each layer (index 0 ..), and with the normed
  /// output under index num_hidden_layers. For tests against an oracle.
  using tap = std::function<void(std::int64_t layer, std::span<float const> rows)>;
  void set_tap(tap observer) { tap_ = std::move(observer); }
  /// The MTP hidden state (after mtp.norm) of the lane's latest draft().
  [[nodiscard]] std::vector<float> draft_hidden(int lane);

 private:
  struct workspace;
  struct lane_state {
    std::vector<std::int32_t> pages;
    std::int64_t position = 0;  ///< final tokens
    /// Last positions of the latest two chunks, whose hidden states are held for MTP rows across
    /// the border; -1: none.
    std::array<std::int64_t, 2> carried = {-1, -1};
    std::size_t newest = 0;
    /// Positions whose hidden states are held for the MTP rows of the next round with drafts.
    std::int64_t settled_from = 0;
    std::int64_t settled_rows = 0;
  };
  /// What a round does; two of the same shape differ in their passes alone. Of one that is filled
  /// up the sizes are those of its bucket.
  struct round_shape {
    std::int64_t lanes = 0;   ///< rows of a pass that drafts
    std::int64_t drafts = 0;  ///< most of any lane
    std::int64_t slots = 0;
    bool logits = false;
    std::int64_t rows = 0;      ///< of the target
    std::int64_t mtp_rows = 0;  ///< that became settled
    std::int64_t settled = 0;   ///< most of any lane that drafts
    bool filled_up = false;
    /// Lanes with more drafts than so many.
    std::array<std::int64_t, 16> drafting = {};
  };
  struct round_rows;

  // Each adds its output to x and takes the norm that follows; before a layer, x's input norm lies
  // in the workspace's `normed`.
  using norm_step = parallel::norm_step;
  void run_layer(layer_weights const& w, std::int64_t cache_layer, ops::pass const& p,
                 ops::tensor x, norm_step const& then);
  void add_attention(attention_weights const& w, std::int64_t cache_layer, ops::pass const& p,
                     ops::tensor normed, ops::tensor x, norm_step const& then);
  void add_gdn(gdn_layer_weights const& w, std::int64_t state_layer, ops::pass const& p,
               ops::tensor normed, ops::tensor x, norm_step const& then);
  void add_mlp(layer_weights const& w, ops::tensor normed, ops::tensor x, norm_step const& then);
  void add_product(ops::linear const& w, ops::tensor input, ops::tensor x, norm_step const& then);
  void read_ahead(ops::linear const& w, std::size_t most_bytes, std::int64_t rows);
  [[nodiscard]] norm_step step(ops::constants const& w, ops::tensor y,
                               ops::linear const* next) const;
  [[nodiscard]] static ops::linear const& first_product(layer_weights const& w);
  [[nodiscard]] ops::tensor mixer_input(layer_weights const& w, std::int64_t rows) const;
  [[nodiscard]] ops::tensor run_target(ops::pass const& p, std::int64_t rows);
  void choose_best(ops::tensor selected, ops::token_list best);
  [[nodiscard]] ops::tensor compute_logits(ops::tensor selected);
  [[nodiscard]] ops::tensor mtp_inputs(ops::pass const& p, ops::tensor hidden);
  void store_mtp_kv(ops::pass const& p, ops::tensor x);
  void make_drafts(ops::pass const& p, ops::tensor x, ops::token_list best);
  [[nodiscard]] std::int64_t mtp_cache_layer() const;
  [[nodiscard]] round_rows plan_round(std::span<round_lane const> batch) const;
  void fill_passes(std::span<round_lane const> batch, round_rows& plan) const;
  void set_round_passes(round_rows const& plan);
  void run_round(round_shape const& shape);
  void read_round(std::span<round_lane const> batch, round_rows const& plan,
                  std::span<round_result> results);
  void report(std::int64_t layer, ops::tensor x);
  [[nodiscard]] lane_state& lane_at(int lane);
  [[nodiscard]] std::int32_t carried_row(int lane, std::size_t which) const;
  [[nodiscard]] std::int32_t snapshot_row(std::int32_t snapshot) const;
  [[nodiscard]] std::int32_t draft_row(int lane) const;
  [[nodiscard]] std::int32_t settled_row(int lane, std::int64_t index) const;
  [[nodiscard]] std::int64_t first_held(round_lane const& one) const;
  [[nodiscard]] std::int32_t unread_row() const;
  void copy_held(std::int32_t from, std::int32_t to);
  [[nodiscard]] std::vector<ops::row_move> carry_hidden();
  [[nodiscard]] std::int32_t hidden_row(int lane, std::int64_t position) const;

  std::shared_ptr<checkpoint::repository> files_;
  checkpoint::model_config config_;  ///< of one rank
  std::shared_ptr<parallel::communicator> ranks_;
  std::unique_ptr<ops::backend> backend_;
  limits limits_;
  model_weights weights_;
  std::unique_ptr<ops::kv_cache> kv_;
  std::unique_ptr<ops::gdn_state> gdn_;
  std::int32_t pass_rows_ = 0;  ///< most of a pass: of forward() or draft()
  std::unique_ptr<workspace> work_;
  std::vector<lane_state> lanes_;
  std::vector<ops::row_span>
      latest_;  ///< spans of the latest forward(), whose hidden rows are still held
  std::vector<float> logits_;
  std::vector<ops::ranked_id> chosen_;   ///< of the latest round
  std::vector<std::int32_t> draft_ids_;  ///< of the latest round
  tap tap_;
};

}  // namespace qwen38::model

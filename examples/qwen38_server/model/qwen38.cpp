// SPDX-License-Identifier: Apache-2.0
#include "model/qwen38.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "model/workspace.hpp"
#include "support/error.hpp"

namespace qwen38::model {
namespace {

// How much of a weight is fetched ahead of its product, behind the mixer of a layer or a norm,
// which leave memory idle: the best of what was measured on an H200. Passes of more rows compute
// for longer than they read.
constexpr std::size_t ahead_in_mixer = std::size_t{12} << 20;
constexpr std::size_t ahead_in_norm = std::size_t{8} << 20;
constexpr std::int64_t most_rows_ahead = 16;
// Lists of row moves that forward() and the last part of draft() give their passes.
constexpr int carry_moves = 0;   // hidden states that end a chunk, to where they are held
constexpr int logits_moves = 1;  // hidden states whose logits are wanted
constexpr int source_moves = 0;  // draft(): held hidden states that the rows start from
constexpr int last_moves = 1;    // draft(): rows that draft
constexpr int output_moves = 0;  // draft(), last part: MTP outputs, to where they are held

ops::attention_shape attention_shape_of(checkpoint::model_config const& c) {
  return {c.num_attention_heads, c.num_kv_heads, c.head_dim,
          c.rotary_dim,          c.rope_theta,   static_cast<float>(c.rms_norm_eps)};
}

ops::gdn_shape gdn_shape_of(checkpoint::model_config const& c) {
  return {c.linear_num_key_heads, c.linear_num_value_heads,
          c.linear_key_head_dim,  c.linear_value_head_dim,
          c.conv_kernel,          static_cast<float>(c.rms_norm_eps)};
}

/// A broken call order is a fault of the engine, never of a user.
void require(bool condition, char const* sentence) {
  if (!condition) throw error(error_kind::internal, sentence);
}

}  // namespace

std::size_t snapshot_bytes(checkpoint::model_config const& config) {
  ops::gdn_shape const g = gdn_shape_of(config);
  std::int64_t const recurrent =
      std::ranges::count(config.layers, checkpoint::layer_kind::linear_attention);
  std::int64_t const values =
      g.num_value_heads * g.key_dim * g.value_dim + (g.conv_kernel - 1) * g.conv_channels();
  std::int64_t const hidden = config.mtp_num_hidden_layers > 0 ? config.hidden_size : 0;
  return static_cast<std::size_t>(recurrent * values + hidden) * sizeof(float);
}

qwen38_model::qwen38_model(std::shared_ptr<checkpoint::repository> files,
                           checkpoint::model_config config, std::unique_ptr<ops::backend> backend,
                           qwen38_options const& options)
    : files_(std::move(files)),
      config_(std::move(config)),
      ranks_(options.ranks),
      backend_(std::move(backend)) {
  if (options.valid_ids < 1 || options.valid_ids > config_.vocab_size) {
    throw error(error_kind::corrupt_data, "the tokenizer has " + std::to_string(options.valid_ids) +
                                              " ids, but the model's vocab_size is " +
                                              std::to_string(config_.vocab_size) +
                                              ": expected 1 to vocab_size ids");
  }
  if (options.max_context < 1 || options.max_context > config_.max_position_embeddings) {
    throw error(error_kind::invalid_argument, "context " + std::to_string(options.max_context) +
                                                  " is out of range: expected 1 to " +
                                                  std::to_string(config_.max_position_embeddings) +
                                                  " (max_position_embeddings)");
  }
  if (options.kv_pages < 0 || options.snapshots < 0) {
    throw error(error_kind::invalid_argument,
                "KV pages " + std::to_string(options.kv_pages) + ", snapshots " +
                    std::to_string(options.snapshots) + ": expected none below 0");
  }
  if (options.prefill_pass < ops::kv_page_tokens ||
      options.prefill_pass % ops::kv_page_tokens != 0) {
    throw error(error_kind::invalid_argument,
                "a prefill pass of " + std::to_string(options.prefill_pass) +
                    " rows: expected a multiple of " + std::to_string(ops::kv_page_tokens));
  }
  // MTP rows after a prompt's last pass may be one more than a pass has.
  pass_rows_ = std::max(max_rows, options.prefill_pass + 1);
  parallel::shard_plan const plan(config_, ranks_ ? ranks_->size() : 1);
  weights_ = load_weights(*files_, config_, plan, ranks_ ? ranks_->rank() : 0, *backend_,
                          {options.self_check, pass_rows_, options.on_progress});

  limits_.vocab_size = static_cast<std::int32_t>(config_.vocab_size);
  config_ = plan.rank_shape();
  limits_.valid_ids = options.valid_ids;
  limits_.max_lanes = options.lanes;
  limits_.max_context = options.max_context;
  limits_.max_rows = max_rows;
  limits_.prefill_chunk = options.prefill_pass;
  limits_.has_mtp = weights_.mtp.has_value();
  limits_.page_tokens = static_cast<std::int32_t>(ops::kv_page_tokens);
  std::int64_t const lane_pages =
      (options.max_context + ops::kv_page_tokens - 1) / ops::kv_page_tokens;
  limits_.kv_pages = options.kv_pages > 0 ? options.kv_pages
                                          : static_cast<std::int32_t>(lane_pages * options.lanes);
  limits_.snapshots = options.snapshots;
  lanes_.resize(static_cast<std::size_t>(options.lanes));

  ops::attention_shape const attention = attention_shape_of(config_);
  ops::gdn_shape const gdn = gdn_shape_of(config_);
  std::int64_t const full =
      std::ranges::count(config_.layers, checkpoint::layer_kind::full_attention);
  std::int64_t const recurrent = std::ssize(config_.layers) - full;
  // The MTP layer's keys and values follow those of the target's layers.
  kv_ = backend_->make_kv_cache(attention, full + (limits_.has_mtp ? 1 : 0), limits_.kv_pages);
  gdn_ = backend_->make_gdn_state(gdn, recurrent, options.lanes, max_tentative_rows,
                                  options.snapshots);

  work_ = std::make_unique<workspace>();
  auto const make = [&](std::int64_t rows, std::int64_t cols,
                        ops::row_kind kind = ops::row_kind::stream) {
    ops::tensor view;
    work_->memory.push_back(backend_->make_tensor(kind, rows, cols, view));
    return view;
  };
  constexpr auto activation = ops::row_kind::activation;
  std::int64_t const h = config_.hidden_size;
  work_->x = make(pass_rows_, h);
  work_->normed = make(pass_rows_, h, activation);
  std::int64_t const q_gate = attention.num_heads * 2 * attention.head_dim;
  std::int64_t const kv = 2 * attention.num_kv_heads * attention.head_dim;
  work_->q_gate_kv = make(pass_rows_, q_gate + kv);
  work_->q_gate = work_->q_gate_kv.slice_cols(0, q_gate);
  work_->kv = work_->q_gate_kv.slice_cols(q_gate, kv);
  work_->attended = make(pass_rows_, attention.num_heads * attention.head_dim, activation);
  work_->qkvz = make(pass_rows_, gdn.conv_channels() + gdn.value_channels());
  work_->ba = make(pass_rows_, 2 * gdn.num_value_heads);
  work_->mixed = make(pass_rows_, gdn.value_channels(), activation);
  work_->activated = make(pass_rows_, config_.intermediate_size, activation);
  work_->selected = make(max_rows, h, activation);
  work_->logits = make(max_rows, config_.vocab_size);
  if (ranks_) {
    work_->partial = make(pass_rows_, h);
    if (ranks_->rank() == 0) work_->all_logits = make(max_rows, limits_.vocab_size);
  }
  work_->held = make(limits_.has_mtp ? unread_row() + 1 : pass_rows_, h);
  work_->hidden = work_->held.slice_rows(0, pass_rows_);
  auto const most_lanes =
      std::min<std::int64_t>(std::bit_ceil(static_cast<std::uint32_t>(options.lanes)), max_rows);
  work_->memory.push_back(
      backend_->make_tokens((max_tentative_rows - 1) * most_lanes + max_rows, work_->tokens));
  ops::pass_limits const narrow{max_rows, most_lanes, lane_pages + 1, max_rows + options.lanes};
  ops::pass_limits wide = narrow;
  wide.rows = pass_rows_;
  wide.moves = pass_rows_ + options.lanes;
  work_->pass = backend_->make_pass(wide);
  std::vector<ops::pass_limits> round_limits = {narrow};
  round_limits.front().choices = max_rows;
  round_limits.front().seen =
      options.lanes *
      std::min<std::int64_t>({ops::max_seen, limits_.valid_ids, options.max_context});
  if (limits_.has_mtp) {
    work_->draft_input = make(pass_rows_, 2 * h, activation);
    work_->draft_source = make(pass_rows_, h);
    work_->draft_x = make(max_rows, h);
    work_->draft_out = make(max_rows, h);
    work_->last_pass = backend_->make_pass(narrow);
    round_limits.push_back(narrow);
    round_limits.resize(round_limits.size() + max_tentative_rows - 1,
                        {most_lanes, most_lanes, lane_pages + 1, 0});
  }
  work_->round_passes = backend_->make_passes(round_limits);
}

qwen38_model::~qwen38_model() = default;

qwen38_model::memory_use qwen38_model::get_memory_use() const noexcept {
  return {weights_.packed_bytes, kv_->resident_bytes(), gdn_->resident_bytes()};
}

qwen38_model::lane_state& qwen38_model::lane_at(int lane) {
  require(lane >= 0 && lane < limits_.max_lanes, "model: no such lane");
  return lanes_[static_cast<std::size_t>(lane)];
}

void qwen38_model::begin(int lane, std::span<std::int32_t const> pages) {
  lane_at(lane) = {};
  lane_at(lane).pages.assign(pages.begin(), pages.end());
  backend_->gdn_reset(*gdn_, lane);
}

void qwen38_model::save(int lane, std::int32_t snapshot) {
  lane_state const& at = lane_at(lane);
  require(snapshot >= 0 && snapshot < limits_.snapshots, "save: no such snapshot");
  require(at.position > 0 && at.position % limits_.prefill_chunk == 0,
          "save: the lane is on no chunk border");
  backend_->gdn_save(*gdn_, lane, snapshot);
  if (!limits_.has_mtp) return;
  require(at.carried[at.newest] == at.position - 1, "save: the last hidden state is not held");
  copy_held(carried_row(lane, at.newest), snapshot_row(snapshot));
}

void qwen38_model::resume(int lane, std::span<std::int32_t const> pages, std::int32_t snapshot,
                          std::int64_t position) {
  lane_state& at = lane_at(lane);
  require(snapshot >= 0 && snapshot < limits_.snapshots, "resume: no such snapshot");
  require(position > 0 && position % limits_.prefill_chunk == 0, "resume: not a chunk border");
  at = {};
  at.pages.assign(pages.begin(), pages.end());
  at.position = position;
  backend_->gdn_load(*gdn_, lane, snapshot);
  if (!limits_.has_mtp) return;
  copy_held(snapshot_row(snapshot), carried_row(lane, 0));
  at.carried[0] = position - 1;
}

void qwen38_model::keep(int lane, std::int64_t rows) {
  backend_->gdn_keep(*gdn_, lane, rows);
  lane_at(lane).position += rows;
}

// Rows of `held`.
std::int32_t qwen38_model::carried_row(int lane, std::size_t which) const {
  return pass_rows_ + 2 * lane + static_cast<std::int32_t>(which);
}
std::int32_t qwen38_model::snapshot_row(std::int32_t snapshot) const {
  return pass_rows_ + 2 * limits_.max_lanes + snapshot;
}
std::int32_t qwen38_model::draft_row(int lane) const {
  return snapshot_row(limits_.snapshots) + lane;
}
std::int32_t qwen38_model::settled_row(int lane, std::int64_t index) const {
  return draft_row(limits_.max_lanes) + lane * max_tentative_rows +
         static_cast<std::int32_t>(index);
}
std::int32_t qwen38_model::unread_row() const {
  return settled_row(limits_.max_lanes, 0);
}

void qwen38_model::copy_held(std::int32_t from, std::int32_t to) {
  backend_->copy(work_->held.slice_rows(from, 1), work_->held.slice_rows(to, 1));
}

/// Where hidden states go after the latest pass: the last of each final span, after which a round
/// may follow, and where it ends a chunk also to the rows for the next chunk's MTP rows.
std::vector<ops::row_move> qwen38_model::carry_hidden() {
  std::vector<ops::row_move> moves;
  if (!limits_.has_mtp) return moves;
  for (ops::row_span const& span : latest_) {
    if (span.tentative) continue;
    auto const last = static_cast<std::int32_t>(span.first_row + span.rows - 1);
    moves.push_back({last, settled_row(span.lane, 0)});
    if ((span.position + span.rows) % limits_.prefill_chunk != 0) continue;
    moves.push_back({last, carried_row(span.lane, lane_at(span.lane).newest ^ 1U)});
  }
  return moves;
}

void qwen38_model::report(std::int64_t layer, ops::tensor x) {
  if (!tap_) return;
  std::vector<float> rows(static_cast<std::size_t>(x.rows * x.cols));
  backend_->read(x, rows);
  tap_(layer, rows);
}

void qwen38_model::add_attention(attention_weights const& w, std::int64_t cache_layer,
                                 ops::pass const& p, ops::tensor normed, ops::tensor x,
                                 norm_step const& then) {
  ops::tensor const q_gate = work_->q_gate.slice_rows(0, x.rows);
  ops::tensor const kv = work_->kv.slice_rows(0, x.rows);
  ops::tensor const attended = backend_->input_rows(*w.out, work_->attended, x.rows);
  if (w.q_gate_kv) {
    backend_->matmul(*w.q_gate_kv, normed, work_->q_gate_kv.slice_rows(0, x.rows), false);
  } else {
    backend_->matmul_two(normed, *w.q_gate, q_gate, *w.kv, kv);
  }
  read_ahead(*w.out, ahead_in_mixer, x.rows);
  backend_->store_and_attend(*kv_, cache_layer, p, kv, *w.k_norm, q_gate, *w.q_norm, attended);
  add_product(*w.out, attended, x, then);
}

void qwen38_model::add_gdn(gdn_layer_weights const& w, std::int64_t state_layer, ops::pass const& p,
                           ops::tensor normed, ops::tensor x, norm_step const& then) {
  ops::tensor const qkvz = work_->qkvz.slice_rows(0, x.rows);
  ops::tensor const ba = work_->ba.slice_rows(0, x.rows);
  ops::tensor const mixed = backend_->input_rows(*w.out, work_->mixed, x.rows);
  backend_->matmul_two(normed, *w.qkvz, qkvz, *w.ba, ba);
  read_ahead(*w.out, ahead_in_mixer, x.rows);
  backend_->gdn(*gdn_, state_layer, p, qkvz, ba, w.view(), mixed);
  add_product(*w.out, mixed, x, then);
}

void qwen38_model::add_mlp(layer_weights const& w, ops::tensor normed, ops::tensor x,
                           norm_step const& then) {
  ops::tensor const activated = work_->activated.slice_rows(0, x.rows);
  backend_->gate_up(*w.mlp.gate_up, normed, activated);
  add_product(*w.mlp.down, activated, x, then);
}

/// x += input W^T, where each rank has some columns of W and of the input.
void qwen38_model::add_product(ops::linear const& w, ops::tensor input, ops::tensor x,
                               norm_step const& then) {
  ops::tensor const sum = ranks_ ? work_->partial.slice_rows(0, x.rows) : x;
  backend_->matmul(w, input, sum, !ranks_);
  if (then.next != nullptr) read_ahead(*then.next, ahead_in_norm, x.rows);
  if (!ranks_) {
    backend_->rms_norm(x, *then.w, then.eps, then.y);
    return;
  }
  // In turns, so that what the ranks exchange needs no more memory for wide passes.
  for (std::int64_t first = 0; first < x.rows; first += max_rows) {
    std::int64_t const rows = std::min<std::int64_t>(max_rows, x.rows - first);
    norm_step part = then;
    if (part.w != nullptr) part.y = then.y.slice_rows(first, rows);
    ranks_->sum_into(sum.slice_rows(first, rows), x.slice_rows(first, rows), part);
  }
}

void qwen38_model::read_ahead(ops::linear const& w, std::size_t most_bytes, std::int64_t rows) {
  if (rows <= most_rows_ahead) backend_->read_ahead(w, most_bytes);
}

parallel::norm_step qwen38_model::step(ops::constants const& w, ops::tensor y,
                                       ops::linear const* next) const {
  return {&w, static_cast<float>(config_.rms_norm_eps), y, next};
}

/// The best valid id of each row, the lowest of equals; the same on every rank.
void qwen38_model::choose_best(ops::tensor selected, ops::token_list best) {
  auto const first = static_cast<std::int32_t>(ranks_ ? config_.vocab_size * ranks_->rank() : 0);
  backend_->best_tokens(*weights_.head, selected, first, limits_.valid_ids, best);
  if (ranks_) ranks_->max_over_ranks(best);
}

/// Logits of all ids, on the first rank; a tensor without rows on the others.
ops::tensor qwen38_model::compute_logits(ops::tensor selected) {
  ops::tensor const logits = work_->logits.slice_rows(0, selected.rows);
  backend_->matmul(*weights_.head, selected, logits, false);
  if (!ranks_) return logits;
  bool const is_first = ranks_->rank() == 0;
  ops::tensor const all = is_first ? work_->all_logits.slice_rows(0, selected.rows) : ops::tensor{};
  ranks_->gather_columns(logits, all);
  return all;
}

/// The largest of the products that read a layer's normed input first.
ops::linear const& qwen38_model::first_product(layer_weights const& w) {
  auto const* const attention = std::get_if<attention_weights>(&w.mixer);
  if (attention == nullptr) return *std::get<gdn_layer_weights>(w.mixer).qkvz;
  return attention->q_gate_kv ? *attention->q_gate_kv : *attention->q_gate;
}

/// Where the norm before a layer leaves what its mixer reads: in the order that all products with
/// it read fastest. What ranks add up is normed in rows.
ops::tensor qwen38_model::mixer_input(layer_weights const& w, std::int64_t rows) const {
  ops::tensor const in_rows = work_->normed.slice_rows(0, rows);
  auto const* const attention = std::get_if<attention_weights>(&w.mixer);
  if (attention == nullptr || ranks_) return in_rows;
  ops::tensor const input = backend_->input_rows(first_product(w), work_->normed, rows);
  bool const all =
      !attention->kv || backend_->input_rows(*attention->kv, work_->normed, rows).fragments;
  return all ? input : in_rows;
}

void qwen38_model::run_layer(layer_weights const& w, std::int64_t cache_layer, ops::pass const& p,
                             ops::tensor x, norm_step const& then) {
  ops::tensor const input = mixer_input(w, x.rows);
  ops::tensor const normed = work_->normed.slice_rows(0, x.rows);
  norm_step const post = step(*w.post_norm, normed, w.mlp.gate_up.get());
  if (auto const* attention = std::get_if<attention_weights>(&w.mixer)) {
    add_attention(*attention, cache_layer, p, input, x, post);
  } else {
    add_gdn(std::get<gdn_layer_weights>(w.mixer), cache_layer, p, input, x, post);
  }
  add_mlp(w, normed, x, then);
}

/// The layers over a pass; returns the normed hidden states, rows of `held`.
ops::tensor qwen38_model::run_target(ops::pass const& p, std::int64_t rows) {
  ops::tensor const x = work_->x.slice_rows(0, rows);
  backend_->embed(*weights_.embedding, p, work_->tokens, x);
  std::int64_t attention_layer = 0;
  std::int64_t gdn_layer = 0;
  ops::tensor const hidden = work_->hidden.slice_rows(0, rows);
  backend_->rms_norm(x, *weights_.layers.front().input_norm,
                     static_cast<float>(config_.rms_norm_eps),
                     mixer_input(weights_.layers.front(), rows));
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    bool const full = config_.layers[i] == checkpoint::layer_kind::full_attention;
    bool const is_last = i + 1 == weights_.layers.size();
    norm_step const next = is_last ? step(*weights_.norm, hidden, weights_.head.get())
                                   : step(*weights_.layers[i + 1].input_norm,
                                          mixer_input(weights_.layers[i + 1], rows),
                                          &first_product(weights_.layers[i + 1]));
    run_layer(weights_.layers[i], full ? attention_layer++ : gdn_layer++, p, x, next);
    report(static_cast<std::int64_t>(i), x);
  }
  report(config_.num_hidden_layers, hidden);
  return hidden;
}

std::span<float const> qwen38_model::forward(std::span<sequence_rows const> batch) {
  std::vector<std::int32_t> ids;
  std::vector<ops::row_move> wanted;
  latest_.clear();
  for (sequence_rows const& sequence : batch) {
    std::int64_t const first = std::ssize(ids);
    std::int64_t const rows = std::ssize(sequence.ids);
    lane_state const& at = lane_at(sequence.lane);
    require(rows > 0 && (first + rows <= max_rows || batch.size() == 1),
            "forward: a pass of several sequences holds 1 to 96 rows");
    require(rows <= max_rows ||
                sequence.position % limits_.prefill_chunk + rows <= limits_.prefill_chunk,
            "forward: more than 96 rows are of one prefill pass");
    require(!sequence.tentative || rows <= max_tentative_rows,
            "forward: at most 16 rows may be tentative");
    require(std::ssize(wanted) + rows - sequence.logits_from <= max_rows,
            "forward: at most 96 rows may have logits");
    require(sequence.position >= 0 && sequence.position + rows <= limits_.max_context,
            "forward: rows beyond the declared context");
    require(sequence.position == at.position, "forward: rows that do not follow the final ones");
    latest_.push_back(
        {sequence.lane, sequence.position, first, rows, sequence.tentative, at.pages});
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    for (std::int64_t r = sequence.logits_from; r < rows; ++r) {
      wanted.push_back(
          {static_cast<std::int32_t>(first + r), static_cast<std::int32_t>(wanted.size())});
    }
  }
  std::int64_t const rows = std::ssize(ids);
  std::vector<ops::row_move> const carried = carry_hidden();
  ops::pass_rows pass{latest_, ids, {}, 0};
  pass.moves[carry_moves] = carried;
  pass.moves[logits_moves] = wanted;
  ops::pass& p = *work_->pass;
  backend_->set_pass(p, pass);
  ops::tensor const hidden = run_target(p, rows);
  if (!carried.empty()) backend_->move_rows(p, carry_moves, hidden, work_->held);
  for (ops::row_span const& span : latest_) {
    if (span.tentative) continue;
    lane_state& at = lane_at(span.lane);
    at.position += span.rows;
    at.settled_from = at.position - 1;
    at.settled_rows = 1;
    if (!limits_.has_mtp || at.position % limits_.prefill_chunk != 0) continue;
    at.newest ^= 1U;
    at.carried[at.newest] = at.position - 1;
  }
  if (wanted.empty()) return {};

  ops::tensor const selected = work_->selected.slice_rows(0, std::ssize(wanted));
  backend_->move_rows(p, logits_moves, hidden, selected);
  ops::tensor const logits = compute_logits(selected);
  logits_.resize(static_cast<std::size_t>(logits.rows * logits.cols));
  if (!logits_.empty()) backend_->read(logits, logits_);
  return logits_;
}

/// The row of `held` with the lane's hidden state at a position.
std::int32_t qwen38_model::hidden_row(int lane, std::int64_t position) const {
  for (ops::row_span const& span : latest_) {
    if (span.lane == lane && position >= span.position && position < span.position + span.rows) {
      return static_cast<std::int32_t>(span.first_row + position - span.position);
    }
  }
  lane_state const& at = lanes_[static_cast<std::size_t>(lane)];
  for (std::size_t which = 0; which < 2; ++which) {
    if (at.carried[which] == position) return carried_row(lane, which);
  }
  if (position >= at.settled_from && position < at.settled_from + at.settled_rows) {
    return settled_row(lane, position - at.settled_from);
  }
  throw error(error_kind::internal,
              "draft: the latest pass does not hold the hidden states asked for");
}

void qwen38_model::draft(std::span<draft_rows const> batch, std::span<std::int32_t> next_ids) {
  require(limits_.has_mtp, "draft: the model has no MTP layer");
  require(batch.size() == next_ids.size(), "draft: one result per sequence");

  // Rows of the pass and, of those, the last row of each sequence that drafts.
  std::vector<std::int32_t> ids;
  std::vector<ops::row_span> spans;
  std::vector<ops::row_move> sources;
  std::vector<ops::row_span> last_spans;
  std::vector<ops::row_move> last_rows;
  std::vector<ops::row_move> outputs;
  for (draft_rows const& sequence : batch) {
    std::int64_t const first = std::ssize(ids);
    std::int64_t const rows = std::ssize(sequence.ids);
    require(rows > 0 && first + rows <= (batch.size() == 1 ? pass_rows_ : max_rows),
            "draft: a pass of several sequences holds 1 to 96 rows, of one as many as a prefill "
            "pass and one more");
    require(sequence.from_target || rows == 1, "draft: a chained draft has one row");
    require(sequence.position + rows <= limits_.max_context,
            "draft: rows beyond the declared context");
    require(sequence.position >= 0, "draft: a row before the first");
    std::span<std::int32_t const> const pages = lane_at(sequence.lane).pages;
    spans.push_back({sequence.lane, sequence.position, first, rows, false, pages});
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int32_t const source = sequence.from_target
                                      ? hidden_row(sequence.lane, sequence.position + r)
                                      : draft_row(sequence.lane);
      sources.push_back({source, static_cast<std::int32_t>(first + r)});
    }
    if (sequence.want_draft) {
      auto const place = static_cast<std::int32_t>(last_rows.size());
      last_spans.push_back({sequence.lane, sequence.position + rows - 1, place, 1, false, pages});
      last_rows.push_back({static_cast<std::int32_t>(first + rows - 1), place});
      outputs.push_back({place, draft_row(sequence.lane)});
    }
  }
  // The MTP layer's row p consumes the token at p + 1 and lies in its slot.
  ops::pass& p = *work_->pass;
  ops::pass& last_pass = *work_->last_pass;
  ops::pass_rows pass{spans, ids, {}, 1};
  pass.moves[source_moves] = sources;
  pass.moves[last_moves] = last_rows;
  backend_->set_pass(p, pass);
  ops::pass_rows last{last_spans, {}, {}, 1};
  last.moves[output_moves] = outputs;
  if (!last_rows.empty()) backend_->set_pass(last_pass, last);

  std::int64_t const rows = std::ssize(ids);
  std::int64_t const count = std::ssize(last_rows);
  ops::tensor const source = work_->draft_source.slice_rows(0, rows);
  backend_->move_rows(p, source_moves, work_->held, source);
  ops::tensor const x = mtp_inputs(p, source);
  if (rows > count) store_mtp_kv(p, x);  // earlier rows leave nothing else behind
  std::ranges::fill(next_ids, -1);
  if (last_rows.empty()) return;

  ops::tensor const last_x = work_->draft_x.slice_rows(0, count);
  ops::token_list const best = work_->tokens.first(static_cast<std::size_t>(count));
  backend_->move_rows(p, last_moves, x, last_x);
  make_drafts(last_pass, last_x, best);
  backend_->move_rows(last_pass, output_moves, work_->draft_out.slice_rows(0, count), work_->held);
  std::vector<ops::ranked_id> drafts(best.size());
  backend_->read(best, drafts);
  std::size_t next = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].want_draft) next_ids[i] = drafts[next++].id;
  }
}

/// x = fc [N(embedding) ; N(hidden)], a row for each hidden state.
ops::tensor qwen38_model::mtp_inputs(ops::pass const& p, ops::tensor hidden) {
  mtp_weights const& mtp = *weights_.mtp;
  float const eps = static_cast<float>(config_.rms_norm_eps);
  std::int64_t const h = config_.hidden_size;
  ops::tensor const input = work_->draft_input.slice_rows(0, hidden.rows);
  ops::tensor const x = work_->x.slice_rows(0, hidden.rows);
  backend_->embed(*weights_.embedding, p, work_->tokens, x);
  backend_->rms_norm(x, *mtp.embedding_norm, eps, input.slice_cols(0, h));
  backend_->rms_norm(hidden, *mtp.hidden_norm, eps, input.slice_cols(h, h));
  backend_->matmul(*mtp.fc, input, x, false);
  return x;
}

/// The keys and values of MTP rows alone.
void qwen38_model::store_mtp_kv(ops::pass const& p, ops::tensor x) {
  layer_weights const& layer = weights_.mtp->layer;
  attention_weights const& attention = std::get<attention_weights>(layer.mixer);
  ops::tensor const normed = work_->normed.slice_rows(0, x.rows);
  ops::tensor const kv = work_->kv.slice_rows(0, x.rows);
  backend_->rms_norm(x, *layer.input_norm, static_cast<float>(config_.rms_norm_eps), normed);
  backend_->matmul(*attention.kv, normed, kv, false);
  backend_->store_kv(*kv_, mtp_cache_layer(), p, kv, *attention.k_norm);
}

/// The MTP layer over rows that draft; leaves its output in draft_out.
void qwen38_model::make_drafts(ops::pass const& p, ops::tensor x, ops::token_list best) {
  mtp_weights const& mtp = *weights_.mtp;
  ops::tensor const out = work_->draft_out.slice_rows(0, x.rows);
  ops::tensor const selected = work_->selected.slice_rows(0, x.rows);
  backend_->rms_norm(x, *mtp.layer.input_norm, static_cast<float>(config_.rms_norm_eps),
                     mixer_input(mtp.layer, x.rows));
  run_layer(mtp.layer, mtp_cache_layer(), p, x, step(*mtp.norm, out, weights_.head.get()));
  backend_->copy(out, selected);
  choose_best(selected, best);
}

/// Keys and values of the MTP layer follow those of the target's layers.
std::int64_t qwen38_model::mtp_cache_layer() const {
  return std::ranges::count(config_.layers, checkpoint::layer_kind::full_attention);
}

std::vector<float> qwen38_model::draft_hidden(int lane) {
  std::vector<float> values(static_cast<std::size_t>(config_.hidden_size));
  backend_->read(work_->held.slice_rows(draft_row(lane), 1), values);
  return values;
}

}  // namespace qwen38::model

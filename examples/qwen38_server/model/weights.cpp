// SPDX-License-Identifier: Apache-2.0
#include "model/weights.hpp"

#include <algorithm>
#include <string>

#include "checkpoint/inspect.hpp"
#include "checkpoint/linear.hpp"
#include "checkpoint/mapped_file.hpp"
#include "model/self_check.hpp"
#include "parallel/linear_slice.hpp"
#include "support/error.hpp"

namespace qwen38::model {
namespace {

/// Looks tensors up by the published names and hands the rank's slices to the backend.
class loader {
 public:
  loader(checkpoint::repository& files, checkpoint::model_config const& config,
         parallel::shard_plan const& plan, int rank, ops::backend& backend,
         load_options const& options)
      : files_(files),
        config_(config),
        plan_(plan),
        rank_(rank),
        backend_(backend),
        options_(options),
        prefix_(checkpoint::text_prefix(files)) {}

  model_weights load() {
    all_bytes_ = checkpoint::verify_weights(files_, config_);  // before minutes of packing
    model_weights all;
    checkpoint::dense_view embedding = checkpoint::find_dense(
        files_, prefix_ + "embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
    require_16_bits(embedding);
    std::optional<checkpoint::address_range> absent;
    if (has_headers_alone()) {
      absent.emplace(
          static_cast<std::size_t>(config_.vocab_size * config_.hidden_size * 2));  // 16 bits each
      embedding.bytes = absent->bytes();
    }
    all.embedding = backend_.make_embedding(embedding.bytes, embedding.type, config_.hidden_size);
    packed_bytes_ += all.embedding->resident_bytes();
    tell(embedding.bytes.size(), embedding.name);
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      all.layers.push_back(layer(prefix_ + "layers." + std::to_string(i) + ".",
                                 config_.layers[static_cast<std::size_t>(i)]));
    }
    all.norm = norm(prefix_ + "norm.weight", config_.hidden_size);
    all.head = config_.tie_word_embeddings ? tied_head(embedding)
                                           : fused({{"lm_head", config_.vocab_size}},
                                                   config_.hidden_size, ops::linear_use::head);
    if (all.embedding->resident_bytes() > 0) files_.let_go(embedding.bytes);
    if (config_.mtp_num_hidden_layers > 0) all.mtp = mtp();
    files_.require_all_used();
    tell(all_bytes_ - done_bytes_, "");  // scales of a few bytes
    all.packed_bytes = packed_bytes_;
    all.linears = std::move(records_);
    return all;
  }

 private:
  struct module_rows {
    std::string name;
    std::int64_t n;
  };

  [[nodiscard]] bool has_headers_alone() const noexcept {
    return files_.mode() == checkpoint::open_mode::headers_only;
  }

  void tell(std::uint64_t bytes, std::string_view item) {
    done_bytes_ += bytes;
    if (options_.on_progress && !has_headers_alone()) {
      options_.on_progress(done_bytes_, all_bytes_, item);
    }
  }

  static void require_16_bits(checkpoint::dense_view const& view) {
    if (view.type != qpn::dtype::f32) return;
    throw error(error_kind::unsupported,
                "tensor " + view.name + " is F32: expected a BF16 or F16 embedding");
  }

  std::unique_ptr<ops::linear> tied_head(checkpoint::dense_view const& embedding) {
    parallel::index_range const ids = plan_.vocabulary(rank_);
    qpn::weight_part part{};
    part.n = ids.count;
    part.codes =
        embedding.bytes.data() + ids.first * config_.hidden_size * qpn::bits(embedding.type) / 8;
    ops::linear_source source;
    source.name = "embed_tokens as head";
    source.dense_type = embedding.type;
    source.k = config_.hidden_size;
    source.parts = {&part, 1};
    source.use = ops::linear_use::head;
    return packed(source, {"embed_tokens as head",
                           1,
                           embedding.type == qpn::dtype::f16 ? checkpoint::quant_class::f16
                                                             : checkpoint::quant_class::bf16,
                           {},
                           {}});
  }

  std::unique_ptr<ops::linear> packed(ops::linear_source const& source, linear_record record) {
    auto matrix = backend_.make_linear(source);
    packed_bytes_ += matrix->resident_bytes();
    record.held = matrix->layout();
    auto const same_layout = [&](linear_record const& one) { return one.held == record.held; };
    if (options_.self_check && std::ranges::none_of(records_, same_layout)) {
      record.checked = check_product(backend_, *matrix, source);
    }
    records_.push_back(std::move(record));
    return matrix;
  }

  std::unique_ptr<ops::constants> vector(std::string const& name,
                                         std::vector<std::int64_t> const& shape) {
    checkpoint::dense_view const published = checkpoint::find_dense(files_, name, shape);
    parallel::tensor_slice const held = plan_.slice(rank_, name, shape);
    if (has_headers_alone()) {
      return backend_.make_constants(std::vector<float>(
          static_cast<std::size_t>(held.row_count() * held.columns.count), 0.0F));
    }
    std::vector<float> const all = published.to_f32();
    tell(published.bytes.size(), name);
    std::vector<float> values;
    for (parallel::index_range const& rows : held.rows) {
      auto const first = all.begin() + rows.first * held.columns.count;
      values.insert(values.end(), first, first + rows.count * held.columns.count);
    }
    return backend_.make_constants(values);
  }
  std::unique_ptr<ops::constants> norm(std::string const& name, std::int64_t size) {
    return vector(name, {size});
  }

  static bool are_of_one_class(checkpoint::linear_view const& a, checkpoint::linear_view const& b) {
    return a.format == b.format && a.dense_type == b.dense_type;
  }

  /// One packed matrix of one or several modules along n, each keeping its own scales.
  std::unique_ptr<ops::linear> fused(std::vector<module_rows> const& modules, std::int64_t k,
                                     ops::linear_use use = ops::linear_use::product) {
    std::vector<checkpoint::linear_view> views;
    std::vector<parallel::linear_slice> slices;
    std::vector<qpn::weight_part> parts;
    for (module_rows const& module : modules) {
      views.push_back(checkpoint::find_linear(files_, module.name, module.n, k));
      slices.push_back(
          parallel::slice_linear(views.back(), plan_.slice(rank_, module.name, {module.n, k})));
      parts.insert(parts.end(), slices.back().parts.begin(), slices.back().parts.end());
      if (!are_of_one_class(views.back(), views.front())) {
        throw error(error_kind::unsupported,
                    "module " + module.name + " is " + std::string(to_string(views.back().cls)) +
                        " but " + views.front().module + " is " +
                        std::string(to_string(views.front().cls)) +
                        ": the same class is expected of both, since they are read as one matrix");
      }
    }
    ops::linear_source source;
    source.format = views.front().format;
    source.dense_type = views.front().dense_type;
    source.scales = fused_scales(modules, views, parts);
    std::string name = modules.front().name;
    for (std::size_t i = 1; i < modules.size(); ++i) name += " + " + modules[i].name;
    source.name = name;
    source.k = slices.front().k;
    source.parts = parts;
    source.use = use;
    if (use != ops::linear_use::head) source.most_rows = options_.most_rows;
    auto matrix = packed(source, {modules.front().name, modules.size(), views.front().cls, {}, {}});
    for (checkpoint::linear_view const& view : views) {
      files_.let_go(view.codes);
      files_.let_go(view.block_scales);
      tell(view.codes.size() + view.block_scales.size(), view.module);
    }
    return matrix;
  }

  /// Tensor scales and those of 128x128 blocks are kept per 32-row tile; tensor scales of parts
  /// that meet inside a tile, or beside a part with channel scales, are kept per row instead.
  static qpn::scale_mode fused_scales(std::vector<module_rows> const& modules,
                                      std::vector<checkpoint::linear_view> const& views,
                                      std::vector<qpn::weight_part> const& parts) {
    auto const any = [&](qpn::scale_mode mode) {
      return std::ranges::any_of(
          views, [mode](checkpoint::linear_view const& one) { return one.scales == mode; });
    };
    bool const splits_tile =
        std::any_of(parts.begin(), parts.end() - 1,
                    [](qpn::weight_part const& part) { return part.n % qpn::tile_n != 0; });
    if (any(qpn::scale_mode::block)) {
      if (!splits_tile && !any(qpn::scale_mode::channel)) return qpn::scale_mode::block;
      throw error(error_kind::unsupported,
                  "module " + modules.front().name +
                      " and those read as one matrix with it have FP8 block scales: multiples of " +
                      std::to_string(qpn::tile_n) + " rows and no channel scales are expected");
    }
    bool const by_row = any(qpn::scale_mode::channel) ||
                        (views.front().scales == qpn::scale_mode::tensor && splits_tile);
    return by_row ? qpn::scale_mode::channel : views.front().scales;
  }

  /// Whether fused() can make one matrix of the modules without giving any a row scale that it has
  /// not.
  [[nodiscard]] bool are_alike(std::vector<module_rows> const& modules, std::int64_t k) {
    checkpoint::linear_view const first =
        checkpoint::find_linear(files_, modules.front().name, modules.front().n, k);
    return std::ranges::all_of(modules, [&](module_rows const& module) {
      checkpoint::linear_view const view =
          checkpoint::find_linear(files_, module.name, module.n, k);
      std::int64_t const held = plan_.slice(rank_, module.name, {module.n, k}).row_count();
      return are_of_one_class(view, first) && view.scales == first.scales &&
             held % qpn::tile_n == 0;
    });
  }

  /// @param one_product  of q_gate, k and v, where they are of one class
  attention_weights attention(std::string const& base, bool one_product) {
    std::int64_t const h = config_.hidden_size;
    std::int64_t const q = config_.num_attention_heads * config_.head_dim;
    std::int64_t const kv = config_.num_kv_heads * config_.head_dim;
    attention_weights w;
    module_rows const of_q{base + "q_proj", 2 * q};
    module_rows const of_k{base + "k_proj", kv};
    module_rows const of_v{base + "v_proj", kv};
    if (one_product && are_alike({of_q, of_k, of_v}, h)) {
      w.q_gate_kv = fused({of_q, of_k, of_v}, h);
    } else {
      w.q_gate = fused({of_q}, h);
      w.kv = fused({of_k, of_v}, h);
    }
    w.out = fused({{base + "o_proj", h}}, q);
    w.q_norm = norm(base + "q_norm.weight", config_.head_dim);
    w.k_norm = norm(base + "k_norm.weight", config_.head_dim);
    return w;
  }

  gdn_layer_weights gdn(std::string const& base) {
    std::int64_t const h = config_.hidden_size;
    std::int64_t const heads = config_.linear_num_value_heads;
    std::int64_t const value = heads * config_.linear_value_head_dim;
    std::int64_t const channels =
        2 * config_.linear_num_key_heads * config_.linear_key_head_dim + value;
    gdn_layer_weights w;
    w.qkvz = fused({{base + "in_proj_qkv", channels}, {base + "in_proj_z", value}}, h);
    w.ba = fused({{base + "in_proj_b", heads}, {base + "in_proj_a", heads}}, h);
    w.out = fused({{base + "out_proj", h}}, value);
    w.conv = vector(base + "conv1d.weight", {channels, 1, config_.conv_kernel});
    w.a_log = norm(base + "A_log", heads);
    w.dt_bias = norm(base + "dt_bias", heads);
    w.norm = norm(base + "norm.weight", config_.linear_value_head_dim);
    return w;
  }

  layer_weights layer(std::string const& base, checkpoint::layer_kind kind,
                      bool one_product = true) {
    std::int64_t const h = config_.hidden_size;
    std::int64_t const intermediate = config_.intermediate_size;
    layer_weights w;
    w.input_norm = norm(base + "input_layernorm.weight", h);
    if (kind == checkpoint::layer_kind::full_attention) {
      w.mixer = attention(base + "self_attn.", one_product);
    } else {
      w.mixer = gdn(base + "linear_attn.");
    }
    w.post_norm = norm(base + "post_attention_layernorm.weight", h);
    w.mlp.gate_up =
        fused({{base + "mlp.gate_proj", intermediate}, {base + "mlp.up_proj", intermediate}}, h,
              ops::linear_use::gate_up);
    w.mlp.down = fused({{base + "mlp.down_proj", h}}, intermediate);
    return w;
  }

  mtp_weights mtp() {
    std::int64_t const h = config_.hidden_size;
    mtp_weights w;
    w.embedding_norm = norm("mtp.pre_fc_norm_embedding.weight", h);
    w.hidden_norm = norm("mtp.pre_fc_norm_hidden.weight", h);
    w.fc = fused({{"mtp.fc", h}}, 2 * h);
    // Of rows that are drafted already it stores keys and values alone.
    w.layer = layer("mtp.layers.0.", checkpoint::layer_kind::full_attention, false);
    w.norm = norm("mtp.norm.weight", h);
    return w;
  }

  checkpoint::repository& files_;
  checkpoint::model_config const& config_;
  parallel::shard_plan const& plan_;
  int const rank_;
  ops::backend& backend_;
  load_options const& options_;
  std::string const prefix_;
  std::size_t packed_bytes_ = 0;
  std::uint64_t all_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::vector<linear_record> records_;
};

}  // namespace

model_weights load_weights(checkpoint::repository& files, checkpoint::model_config const& config,
                           parallel::shard_plan const& plan, int rank, ops::backend& backend,
                           load_options const& options) {
  return loader(files, config, plan, rank, backend, options).load();
}

}  // namespace qwen38::model

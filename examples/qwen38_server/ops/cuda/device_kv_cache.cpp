// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/device_kv_cache.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

constexpr std::int64_t most_queries = attention_many_folded_params::queries_per_block;

void require_shape(attention_shape const& shape) {
  if (shape.head_dim != head_dim) {
    throw error(error_kind::unsupported, "head_dim " + std::to_string(shape.head_dim) +
                                             ": the CUDA backend expects " +
                                             std::to_string(head_dim));
  }
  if (shape.rotary_dim > head_dim || shape.rotary_dim % 2 != 0) {
    throw error(error_kind::unsupported, "rotary dimension " + std::to_string(shape.rotary_dim) +
                                             ": the CUDA backend expects an even one of at most " +
                                             std::to_string(head_dim));
  }
}

}  // namespace

device_kv_cache::device_kv_cache(device& owner, attention_shape const& shape, std::int64_t layers,
                                 std::int64_t pages, cuda_options const& options)
    : owner_(owner),
      shape_(shape),
      pages_(pages),
      most_sums_(options.attention_sums),
      // One page more than callers have, for the rows that fill up a pass.
      layer_values_((pages + 1) * shape.num_kv_heads * kv_page_tokens * shape.head_dim),
      has_tiles_(options.attention_tiles && owner.info().compute_capability >= 80 &&
                 owner.info().shared_bytes_per_block >=
                     attention_many_folded_params::shared_bytes) {
  require_shape(shape);
  keys_ = make_array<std::uint16_t>(owner, layers * layer_values_, "the KV cache");
  values_ = make_array<std::uint16_t>(owner, layers * layer_values_, "the KV cache");
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < shape.rotary_dim / 2; ++i) {
    double const exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.rotary_dim);
    frequencies.push_back(std::pow(shape.rope_theta, exponent));
  }
  frequencies_ = make_array<double>(owner, std::ssize(frequencies), "the RoPE frequencies");
  owner.upload(frequencies_.as(), frequencies.data(), frequencies_.bytes());
}

rope_params device_kv_cache::rope(float const* norm) const {
  return {norm, frequencies_.as<double>(), static_cast<int>(shape_.rotary_dim / 2), shape_.eps};
}

store_kv_params device_kv_cache::storing(std::int64_t layer, device_pass const& p, tensor const& kv,
                                         float const* k_norm) {
  p.require_pages(pages_);
  store_kv_params kernel;
  kernel.pass = p.view();
  kernel.rope = rope(k_norm);
  kernel.kv = static_cast<float const*>(kv.data);
  kernel.kv_stride = kv.stride;
  kernel.rows = p.rows();
  kernel.kv_heads = static_cast<int>(shape_.num_kv_heads);
  kernel.keys = keys_.as<std::uint16_t>() + layer * layer_values_;
  kernel.values = values_.as<std::uint16_t>() + layer * layer_values_;
  return kernel;
}

void device_kv_cache::store(std::int64_t layer, device_pass const& p, tensor const& kv,
                            float const* k_norm) {
  owner_.launch(storing(layer, p, kv, k_norm));
}

void device_kv_cache::attend(std::int64_t layer, device_pass const& p, tensor const& q_gate,
                             float const* q_norm, output_rows const& out) const {
  attend_after(std::nullopt, layer, p, q_gate, q_norm, out);
}

void device_kv_cache::store_and_attend(std::int64_t layer, device_pass const& p, tensor const& kv,
                                       float const* k_norm, tensor const& q_gate,
                                       float const* q_norm, output_rows const& out) {
  attend_after(storing(layer, p, kv, k_norm), layer, p, q_gate, q_norm, out);
}

/// Sums of all partitions where they have room; for as many rows of the pass at a time as do.
attention_sums device_kv_cache::place_sums(device_pass const& p) const {
  std::int64_t const heads = shape_.num_heads;
  std::int64_t const most = partition_of(pages_ * kv_page_tokens) + 1;
  std::int64_t const capacity =
      std::max(std::min(most_sums_, p.limits().rows * heads * most), p.limits().rows * heads);
  attention_sums sums;
  sums.numerators =
      numerators_.at_least<float>(owner_, capacity * head_dim, "the partial sums of attention");
  sums.sums = sums_.at_least<softmax_sum>(owner_, capacity, "the partial sums of attention");
  sums.partitions = partition_of(p.last_slot()) + 1;
  std::int64_t const rows = std::min(p.rows(), capacity / (heads * sums.partitions));
  // Where the queries alone occupy the GPU, nothing is gained by a CTA for each partition.
  std::int64_t const ctas =
      std::ssize(p.spans()) * shape_.num_kv_heads *
      divide_up(p.longest_span() * (heads / shape_.num_kv_heads), most_queries);
  sums.folded = sums.partitions > 1 && (rows < 1 || ctas >= owner_.info().sm_count);
  if (sums.folded) sums.partitions = 1;
  sums.rows = static_cast<int>(sums.folded ? p.rows() : rows);
  return sums;
}

void device_kv_cache::attend_after(std::optional<store_kv_params> const& store, std::int64_t layer,
                                   device_pass const& p, tensor const& q_gate, float const* q_norm,
                                   output_rows const& out) const {
  p.require_pages(pages_);
  auto const heads = static_cast<int>(shape_.num_heads);
  std::int64_t const span_queries = p.longest_span() * (shape_.num_heads / shape_.num_kv_heads);

  prepare_queries_params prepare;
  prepare.pass = p.view();
  prepare.rope = rope(q_norm);
  prepare.q_gate = static_cast<float const*>(q_gate.data);
  prepare.q_gate_stride = q_gate.stride;
  prepare.rows = p.rows();
  prepare.heads = heads;
  prepare.queries = {queries_.at_least<float>(owner_, p.limits().rows * heads * head_dim,
                                              "the queries of attention"),
                     std::int64_t{heads} * head_dim, has_tiles_};
  if (!has_tiles_) prepare.scale = attention_simt_params::query_scale;

  attention_args attention;
  attention.pass = p.view();
  attention.heads = heads;
  attention.kv_heads = static_cast<int>(shape_.num_kv_heads);
  attention.keys = keys_.as<std::uint16_t>() + layer * layer_values_;
  attention.values = values_.as<std::uint16_t>() + layer * layer_values_;
  attention.out = place_sums(p);
  auto const ctas_of = [&](std::int64_t queries) {
    return std::ssize(p.spans()) * shape_.num_kv_heads * divide_up(span_queries, queries);
  };
  constexpr std::int64_t few_queries = attention_few_params::queries_per_block;
  // More CTAs of fewer queries each take a partition's keys and values several times from the
  // cache: as long as every multiprocessor has one at most, they are done earlier.
  bool const few = span_queries <= few_queries ||
                   (!attention.out.folded &&
                    ctas_of(few_queries) * attention.out.partitions <= owner_.info().sm_count);
  bool const prepares = has_tiles_ && few && !attention.out.folded;
  bool const by_one_cta =
      span_queries <= few_queries || p.last_slot() < first_slot_of_long_partitions;
  bool const stores = prepares && by_one_cta &&
                      p.longest_span() <= attention_few_params::most_stored &&
                      attention.out.rows == p.rows();
  if (store && prepares && !stores) owner_.launch(*store);
  if (store && !prepares) owner_.launch(prepare_heads_params{*store, prepare});
  if (!store && !prepares) owner_.launch(prepare);

  attention_output_params output;
  output.pass = p.view();
  output.q_gate = prepare.q_gate;
  output.q_gate_stride = q_gate.stride;
  output.out = out;
  output.heads = heads;

  // Of folded CTAs all take as long as they have queries: as few turns of them as may be.
  auto const turns = [&](std::int64_t queries) {
    return divide_up(ctas_of(queries), owner_.info().sm_count) * queries;
  };
  bool const some = turns(attention_some_folded_params::queries_per_block) < turns(most_queries);

  auto const launch = [&](auto kernel, attention_sums const& sums) {
    using params = decltype(kernel);
    static_cast<attention_args&>(kernel) = attention;
    kernel.out = sums;
    kernel.query_tiles = divide_up(span_queries, params::queries_per_block);
    kernel.queries = static_cast<decltype(kernel.queries)>(prepare.queries.data);
    if constexpr (!std::is_same_v<params, attention_simt_params>) {
      kernel.rope = prepare.rope;
      kernel.q_gate = prepare.q_gate;
      kernel.q_gate_stride = prepare.q_gate_stride;
      if (store && stores) kernel.store = *store;
    }
    owner_.launch(kernel);
  };
  auto const rows = static_cast<int>(p.rows());
  for (int first = 0; first < rows; first += attention.out.rows) {
    attention_sums window = attention.out;
    window.first_row = first;
    window.rows = std::min(window.rows, rows - first);
    if (!has_tiles_) {
      launch(attention_simt_params(), window);
    } else if (window.folded && few) {
      launch(attention_few_folded_params(), window);
    } else if (window.folded && some) {
      launch(attention_some_folded_params(), window);
    } else if (window.folded) {
      launch(attention_many_folded_params(), window);
    } else if (few) {
      launch(attention_few_params(), window);
    } else if (span_queries <= attention_pair_params::queries_per_block) {
      launch(attention_pair_params(), window);
    } else {
      launch(attention_some_params(), window);
    }
    output.in = window;
    owner_.launch(output);
  }
}

}  // namespace qwen38::ops::cuda

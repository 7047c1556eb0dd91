// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/inventory.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "checkpoint/ignored_tensors.hpp"
#include "checkpoint/linear.hpp"
#include "checkpoint/message_text.hpp"

namespace qwen38::checkpoint {
namespace {

// Collects entries; inside the MTP head everything is of one group.
class model_lister {
 public:
  explicit model_lister(model_config const& config) : config_(config) {}

  void add_model(std::string const& prefix) {
    std::int64_t const hidden = config_.hidden_size;
    dense(prefix + "embed_tokens.weight", weight_group::embedding, {config_.vocab_size, hidden});
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      layer(prefix + "layers." + std::to_string(i) + ".", config_.layers[i]);
    }
    norm(prefix + "norm.weight", hidden);
    if (!config_.tie_word_embeddings)
      linear("lm_head", weight_group::head, config_.vocab_size, hidden);
  }

  void add_mtp() {
    std::int64_t const hidden = config_.hidden_size;
    in_mtp_ = true;
    linear("mtp.fc", weight_group::mtp, hidden, 2 * hidden);
    norm("mtp.pre_fc_norm_embedding.weight", hidden);
    norm("mtp.pre_fc_norm_hidden.weight", hidden);
    norm("mtp.norm.weight", hidden);
    for (std::int64_t i = 0; i < config_.mtp_num_hidden_layers; ++i) {
      layer("mtp.layers." + std::to_string(i) + ".", layer_kind::full_attention);
    }
    in_mtp_ = false;
  }

  std::vector<model_entry> entries;

 private:
  void linear(std::string const& module, weight_group group, std::int64_t n, std::int64_t k) {
    entries.push_back({module, in_mtp_ ? weight_group::mtp : group, true, {n, k}});
  }
  void dense(std::string const& name, weight_group group, std::vector<std::int64_t> shape) {
    entries.push_back({name, in_mtp_ ? weight_group::mtp : group, false, std::move(shape)});
  }
  void norm(std::string const& name, std::int64_t size) {
    dense(name, weight_group::small, {size});
  }

  void layer(std::string const& base, layer_kind kind) {
    std::int64_t const hidden = config_.hidden_size;
    norm(base + "input_layernorm.weight", hidden);
    if (kind == layer_kind::full_attention) {
      attention(base + "self_attn.");
    } else {
      gdn(base + "linear_attn.");
    }
    norm(base + "post_attention_layernorm.weight", hidden);
    linear(base + "mlp.gate_proj", weight_group::mlp, config_.intermediate_size, hidden);
    linear(base + "mlp.up_proj", weight_group::mlp, config_.intermediate_size, hidden);
    linear(base + "mlp.down_proj", weight_group::mlp, hidden, config_.intermediate_size);
  }

  void attention(std::string const& base) {
    std::int64_t const hidden = config_.hidden_size;
    linear(base + "q_proj", weight_group::attention, config_.q_proj_rows(), hidden);
    linear(base + "k_proj", weight_group::attention, config_.kv_dim(), hidden);
    linear(base + "v_proj", weight_group::attention, config_.kv_dim(), hidden);
    linear(base + "o_proj", weight_group::attention, hidden, config_.attention_dim());
    norm(base + "q_norm.weight", config_.head_dim);
    norm(base + "k_norm.weight", config_.head_dim);
  }

  void gdn(std::string const& base) {
    std::int64_t const hidden = config_.hidden_size;
    std::int64_t const heads = config_.linear_num_value_heads;
    linear(base + "in_proj_qkv", weight_group::gdn, config_.linear_qkv_dim(), hidden);
    linear(base + "in_proj_z", weight_group::gdn, config_.linear_value_dim(), hidden);
    linear(base + "in_proj_b", weight_group::gdn_gates, heads, hidden);
    linear(base + "in_proj_a", weight_group::gdn_gates, heads, hidden);
    dense(base + "conv1d.weight", weight_group::small,
          {config_.linear_qkv_dim(), 1, config_.conv_kernel});
    dense(base + "A_log", weight_group::small, {heads});
    dense(base + "dt_bias", weight_group::small, {heads});
    norm(base + "norm.weight", config_.linear_value_head_dim);
    linear(base + "out_proj", weight_group::gdn, hidden, config_.linear_value_dim());
  }

  model_config const& config_;
  bool in_mtp_ = false;
};

std::vector<tensor_view const*> tensors_of(repository const& tensors, model_entry const& entry) {
  std::vector<tensor_view const*> found;
  if (!entry.is_linear) {
    if (tensor_view const* const tensor = tensors.find(entry.name)) found.push_back(tensor);
    return found;
  }
  for (std::string_view const suffix : linear_suffixes()) {
    if (tensor_view const* const tensor = tensors.find(entry.name + std::string(suffix))) {
      found.push_back(tensor);
    }
  }
  return found;
}

void count(weight_total& total, std::uint64_t bytes) {
  ++total.count;
  total.bytes += bytes;
}

void check_entry(repository& tensors, model_entry const& entry,
                 std::vector<tensor_view const*> const& found, inventory& result) {
  if (!entry.is_linear) {
    (void)find_dense(tensors, entry.name, entry.shape);
    return;
  }
  linear_view const linear = find_linear(tensors, entry.name, entry.shape[0], entry.shape[1]);
  result.linears.back().cls = linear.cls;
  weight_total& total = result.classes[static_cast<std::size_t>(linear.cls)];
  ++total.count;
  for (tensor_view const* const tensor : found) total.bytes += tensor->byte_count;
}

// The group of a tensor that belongs to an entry of `group`.
weight_group group_within(model_entry const& entry, tensor_view const& tensor) {
  bool const is_scale =
      entry.is_linear && tensor.element_count() == 1 && !tensor.name.ends_with(".weight");
  return is_scale ? weight_group::scalars : entry.group;
}

weight_group group_outside(tensor_view const& tensor) {
  ignored_rule const* const rule = find_ignored_rule(tensor.name);
  if (rule == nullptr) return weight_group::unaccounted;
  return rule->match == name_match::prefix ? weight_group::vision : weight_group::scalars;
}

}  // namespace

std::string_view to_string(weight_group group) noexcept {
  switch (group) {
    case weight_group::mlp: return "mlp";
    case weight_group::head: return "head";
    case weight_group::attention: return "attention";
    case weight_group::gdn: return "gdn";
    case weight_group::embedding: return "embedding";
    case weight_group::gdn_gates: return "gdn_gates";
    case weight_group::small: return "small";
    case weight_group::mtp: return "mtp";
    case weight_group::vision: return "vision";
    case weight_group::scalars: return "scalars";
    case weight_group::unaccounted: return "unaccounted";
  }
  return "unknown";
}

std::vector<model_entry> list_model(model_config const& config, std::string const& prefix) {
  model_lister lister(config);
  lister.add_model(prefix);
  if (config.mtp_num_hidden_layers > 0) lister.add_mtp();
  return std::move(lister.entries);
}

inventory take_inventory(repository& tensors, model_config const& config, diagnostics& report) {
  inventory result;
  result.prefix = text_prefix(tensors);
  std::unordered_map<tensor_view const*, weight_group> groups;
  std::vector<std::string> missing;
  std::vector<model_entry> const entries = list_model(config, result.prefix);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    model_entry const& entry = entries[i];
    if (entry.is_linear) result.linears.push_back({entry.name, std::nullopt});
    std::vector<tensor_view const*> const found = tensors_of(tensors, entry);
    if (found.empty()) {
      missing.push_back(entry.name);
      continue;
    }
    for (tensor_view const* const tensor : found) {
      weight_group const group = group_within(entry, *tensor);
      groups.emplace(tensor, group);
      result.used.push_back({tensor->name, i, group, tensor->shape, tensor->byte_count});
    }
    try {
      check_entry(tensors, entry, found, result);
    } catch (error const& failure) {
      report.fail(failure.kind(), failure.what());
    }
  }
  for (tensor_view const* const tensor : tensors.tensors()) {
    auto const known = groups.find(tensor);
    weight_group const group = known != groups.end() ? known->second : group_outside(*tensor);
    count(result.groups[static_cast<std::size_t>(group)], tensor->byte_count);
    count(result.all, tensor->byte_count);
  }
  if (!missing.empty()) {
    report.fail(error_kind::corrupt_data,
                tensors.directory().string() + ": the checkpoint lacks " +
                    std::to_string(missing.size()) +
                    " modules or tensors of the model: " + first_few(missing));
  }
  try {
    tensors.require_all_used();
  } catch (error const& failure) {
    report.fail(failure.kind(), failure.what());
  }
  return result;
}

}  // namespace qwen38::checkpoint

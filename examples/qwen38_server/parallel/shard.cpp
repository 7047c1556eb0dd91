// SPDX-License-Identifier: Apache-2.0
#include "parallel/shard.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>

#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

constexpr std::int64_t nvfp4_group = 16;  // columns that share a block scale

enum class split : std::uint8_t {
  whole,
  rows,
  qkv_rows,  // q | k | v, each cut by rows
  columns,
};

struct rule {
  std::string_view name;  // last component of the module's or tensor's name
  split how;
};

constexpr std::array<rule, 25> rules = {{
    {"embed_tokens", split::whole},
    {"input_layernorm", split::whole},
    {"post_attention_layernorm", split::whole},
    {"norm", split::whole},
    {"q_norm", split::whole},
    {"k_norm", split::whole},
    {"fc", split::whole},
    {"pre_fc_norm_embedding", split::whole},
    {"pre_fc_norm_hidden", split::whole},
    {"q_proj", split::rows},
    {"k_proj", split::rows},
    {"v_proj", split::rows},
    {"in_proj_z", split::rows},
    {"in_proj_b", split::rows},
    {"in_proj_a", split::rows},
    {"A_log", split::rows},
    {"dt_bias", split::rows},
    {"gate_proj", split::rows},
    {"up_proj", split::rows},
    {"lm_head", split::rows},
    {"in_proj_qkv", split::qkv_rows},
    {"conv1d", split::qkv_rows},
    {"o_proj", split::columns},
    {"out_proj", split::columns},
    {"down_proj", split::columns},
}};

split split_of(std::string_view name) {
  std::string_view last = name;
  constexpr std::string_view suffix = ".weight";
  if (last.ends_with(suffix)) last.remove_suffix(suffix.size());
  last.remove_prefix(last.rfind('.') + 1);  // none found: npos + 1 = 0
  auto const found = std::ranges::find(rules, last, &rule::name);
  if (found == rules.end()) {
    throw error(error_kind::internal,
                "tensor " + std::string(name) + ": no rule says how it is split over ranks");
  }
  return found->how;
}

void require_division(std::int64_t count, char const* what, int size) {
  if (count % size == 0) return;
  throw error(error_kind::invalid_argument,
              std::to_string(count) + " " + what + " do not split over " + std::to_string(size) +
                  " ranks: expected a number of ranks that divides them");
}

void require_groups(std::int64_t columns, char const* what, int size) {
  if (columns / size % nvfp4_group == 0) return;
  throw error(error_kind::invalid_argument,
              "the " + std::to_string(columns) + " columns of " + what + " do not split over " +
                  std::to_string(size) +
                  " ranks at borders of the NVFP4 group: expected a multiple of 16 on each");
}

index_range part_of(std::int64_t count, int rank, int size) {
  return {count / size * rank, count / size};
}

}  // namespace

std::int64_t tensor_slice::row_count() const noexcept {
  return std::transform_reduce(rows.begin(), rows.end(), std::int64_t{0}, std::plus<>(),
                               [](index_range const& range) { return range.count; });
}

shard_plan::shard_plan(checkpoint::model_config const& config, int size)
    : size_(size), rank_shape_(config) {
  if (size < 1) {
    throw error(error_kind::invalid_argument,
                std::to_string(size) + " ranks: expected at least one");
  }
  require_division(config.num_kv_heads, "kv heads", size);
  require_division(config.num_attention_heads, "query heads", size);
  require_division(config.linear_num_key_heads, "GDN key heads", size);
  require_division(config.linear_num_value_heads, "GDN value heads", size);
  require_division(config.intermediate_size, "MLP columns", size);
  require_division(config.vocab_size, "vocabulary rows", size);
  if (size > 1) {
    require_groups(config.attention_dim(), "o_proj", size);
    require_groups(config.linear_value_dim(), "out_proj", size);
    require_groups(config.intermediate_size, "down_proj", size);
  }
  for (std::int64_t* const extent :
       {&rank_shape_.num_kv_heads, &rank_shape_.num_attention_heads,
        &rank_shape_.linear_num_key_heads, &rank_shape_.linear_num_value_heads,
        &rank_shape_.intermediate_size, &rank_shape_.vocab_size}) {
    *extent /= size;
  }
}

index_range shard_plan::vocabulary(int rank) const noexcept {
  return {rank_shape_.vocab_size * rank, rank_shape_.vocab_size};
}

tensor_slice shard_plan::slice(int rank, std::string_view name,
                               std::vector<std::int64_t> const& shape) const {
  std::int64_t const n = shape.front();
  std::int64_t const k =
      std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
  switch (split_of(name)) {
    case split::whole: break;
    case split::rows: return {{part_of(n, rank, size_)}, {0, k}};
    case split::columns: return {{{0, n}}, part_of(k, rank, size_)};
    case split::qkv_rows: {
      if (size_ == 1) break;
      std::int64_t const key = rank_shape_.linear_key_dim();  // of one rank, as `value`
      std::int64_t const value = rank_shape_.linear_value_dim();
      return {
          {{key * rank, key}, {key * (size_ + rank), key}, {key * 2 * size_ + value * rank, value}},
          {0, k}};
    }
  }
  return {{{0, n}}, {0, k}};
}

}  // namespace qwen38::parallel

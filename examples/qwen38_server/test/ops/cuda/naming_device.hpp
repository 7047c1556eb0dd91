// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ops/cuda/counting_device.hpp"
#include "support/devices.hpp"

namespace qwen38::test {

/// Launches by name, products with their sizes: "gemm 4096 x 5120, 8 rows".
using launch_counts = std::map<std::string, std::int64_t>;

[[nodiscard]] inline std::string product_name(std::int64_t n, std::int64_t k, std::int64_t rows) {
  return "gemm " + std::to_string(n) + " x " + std::to_string(k) + ", " + std::to_string(rows) +
         " rows";
}

template <class Params>
inline constexpr bool is_gdn_short = false;
template <int Ctas>
inline constexpr bool is_gdn_short<ops::cuda::gdn_short_params<Ctas>> = true;

/// The name of a kernel of rounds and of what is between ranks; of others "another kernel".
[[nodiscard]] inline char const* kernel_name(ops::cuda::kernel_params const& kernel) {
  using namespace ops::cuda;
  return std::visit(
      []<class Params>(Params const&) {
        if constexpr (std::is_same_v<Params, embed_params>) return "embed";
        if constexpr (std::is_same_v<Params, copy_rows_params>) return "copy_rows";
        if constexpr (std::is_same_v<Params, pack_tokens_params>) return "pack_tokens";
        if constexpr (std::is_same_v<Params, rms_norm_params>) return "rms_norm";
        if constexpr (std::is_same_v<Params, store_kv_params>) return "store_kv";
        if constexpr (std::is_same_v<Params, prepare_queries_params>) return "prepare_queries";
        if constexpr (std::is_same_v<Params, prepare_heads_params>) return "prepare_heads";
        if constexpr (std::is_same_v<Params, attention_simt_params>) return "attention_simt";
        if constexpr (std::is_same_v<Params, attention_few_params>) return "attention_few";
        if constexpr (std::is_same_v<Params, attention_pair_params>) return "attention_pair";
        if constexpr (std::is_same_v<Params, attention_some_params>) return "attention_some";
        if constexpr (std::is_same_v<Params, attention_output_params>) return "attention_output";
        if constexpr (std::is_same_v<Params, gdn_prepare_params>) return "gdn_prepare";
        if constexpr (std::is_same_v<Params, gdn_recurrence_params<1>>) return "gdn_recurrence";
        if constexpr (std::is_same_v<Params, gdn_recurrence_params<2>>) return "gdn_replay";
        if constexpr (std::is_same_v<Params, gdn_norm_params>) return "gdn_norm";
        if constexpr (std::is_same_v<Params, gdn_shift_params>) return "gdn_shift";
        if constexpr (is_gdn_short<Params>) return "gdn_short";
        if constexpr (std::is_same_v<Params, peer_reduce_params>) return "peer_reduce";
        if constexpr (std::is_same_v<Params, peer_gather_params>) return "peer_gather";
        if constexpr (std::is_same_v<Params, best_of_ranks_params>) return "best_of_ranks";
        return "another kernel";
      },
      kernel);
}

/// A GPU, a V100 if not told otherwise, that computes nothing: what it is told to launch, it counts
/// by name.
class naming_device final : public ops::cuda::counting_device {
 public:
  explicit naming_device(int ordinal = 0, qpn::device_info const& info = qpn::test::volta_v100())
      : counting_device(info, "a GPU that only counts", ordinal) {}

  /// Since they were last taken.
  [[nodiscard]] launch_counts take_launches() { return std::exchange(launches_, {}); }

  [[nodiscard]] std::unique_ptr<ops::cuda::device_graph> capture_alone(
      std::function<void()> const& work) override {
    launch_counts const before = std::exchange(launches_, {});
    work();
    auto graph = std::make_unique<named_graph>();
    graph->launches = std::exchange(launches_, before);
    return graph;
  }
  void replay_alone(ops::cuda::device_graph& graph) override {
    for (auto const& [name, count] : static_cast<named_graph&>(graph).launches) {
      launches_[name] += count;
    }
  }
  void launch(ops::cuda::kernel_params const& kernel) override {
    ++launches_[kernel_name(kernel)];
    std::visit(
        [&]<class Params>(Params const& own) {
          if constexpr (is_gdn_short<Params>) {
            if (own.state_is_there) ++early_states_;
            if (Params::cluster != 1) ++clusters_;
          }
        },
        kernel);
    for (announced_range& one : announced_) ++one.kernels;
  }
  void read_ahead(ops::cuda::byte_range range) noexcept override {
    announced_.push_back({range, 0, 0, {}});
  }
  void gemm(ops::cuda::linear_plan const& plan, qpn::gemm_args const& args,
            qpn::workspace_view workspace) override {
    counting_device::gemm(plan, args, workspace);
    qpn::packed_layout const& weight = args.weight.layout;
    std::string const name = product_name(weight.n, weight.k, args.m);
    ++launches_[name];
    for (announced_range& one : announced_) {
      if (!one.product.empty()) continue;
      ++one.products;
      bool const starts = one.range.data == args.weight.data + weight.codes_offset;
      bool const fits = one.range.data + one.range.bytes <= args.weight.data + weight.total_bytes;
      if (starts && fits) one.product = name;
    }
  }

  /// Launches of gdn_short that read the state before they wait.
  [[nodiscard]] std::int64_t early_states() const noexcept { return early_states_; }
  /// Of gdn_short with several CTAs a head.
  [[nodiscard]] std::int64_t clusters() const noexcept { return clusters_; }

  /// A range that was announced by read_ahead(), and what came behind it.
  struct announced_range {
    ops::cuda::byte_range range;
    int kernels = 0;
    int products = 0;     ///< up to the one that read it
    std::string product;  ///< empty: none read it
  };
  /// Since they were last taken.
  [[nodiscard]] std::vector<announced_range> take_announced() {
    return std::exchange(announced_, {});
  }

 private:
  class named_graph final : public ops::cuda::device_graph {
   public:
    launch_counts launches;
  };

  launch_counts launches_;
  std::int64_t early_states_ = 0;
  std::int64_t clusters_ = 0;
  std::vector<announced_range> announced_;
};

}  // namespace qwen38::test

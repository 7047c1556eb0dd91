// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "ops/cuda/device.hpp"
#include "support/devices.hpp"

namespace qwen38::test {

/// Launches by name, products with their sizes: "gemm 4096 x 5120, 8 rows".
using launch_counts = std::map<std::string, std::int64_t>;

[[nodiscard]] inline std::string product_name(std::int64_t n, std::int64_t k, std::int64_t rows) {
  return "gemm " + std::to_string(n) + " x " + std::to_string(k) + ", " + std::to_string(rows) +
         " rows";
}

/// The name of a kernel of sm_70 and of what is between ranks; of others "another kernel".
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
        if constexpr (std::is_same_v<Params, attention_simt_params>) return "attention_simt";
        if constexpr (std::is_same_v<Params, attention_output_params>) return "attention_output";
        if constexpr (std::is_same_v<Params, gdn_prepare_params>) return "gdn_prepare";
        if constexpr (std::is_same_v<Params, gdn_recurrence_params>) return "gdn_recurrence";
        if constexpr (std::is_same_v<Params, gdn_norm_params>) return "gdn_norm";
        if constexpr (std::is_same_v<Params, gdn_shift_params>) return "gdn_shift";
        if constexpr (std::is_same_v<Params, peer_reduce_params>) return "peer_reduce";
        if constexpr (std::is_same_v<Params, peer_gather_params>) return "peer_gather";
        if constexpr (std::is_same_v<Params, best_of_ranks_params>) return "best_of_ranks";
        return "another kernel";
      },
      kernel);
}

/// A V100 that computes nothing: what it is told to launch, it counts.
class counting_device final : public ops::cuda::device {
 public:
  explicit counting_device(int ordinal = 0) : info_(qpn::test::volta_v100()), ordinal_(ordinal) {}

  /// Since they were last taken.
  [[nodiscard]] launch_counts take_launches() { return std::exchange(launches_, {}); }

  [[nodiscard]] qpn::device_info const& info() const noexcept override { return info_; }
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }
  [[nodiscard]] void* allocate(std::size_t bytes, std::string const&) override {
    void* const memory = ::operator new (bytes, std::align_val_t{256});
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(void* memory) noexcept override {
    ::operator delete (memory, std::align_val_t{256});
  }
  void clear(ops::cuda::byte_lines, std::size_t, std::size_t) override {}
  void copy(ops::cuda::byte_lines, ops::cuda::byte_lines, std::size_t, std::size_t) override {}
  void upload(void* to, void const* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, ops::cuda::byte_lines, std::size_t width, std::size_t height) override {
    std::memset(to, 0, width * height);
  }
  void wait() override {}
  [[nodiscard]] std::uint64_t waits() const noexcept override { return 0; }
  [[nodiscard]] std::unique_ptr<ops::cuda::device_graph> capture(
      std::function<void()> const& work) override {
    launch_counts const before = std::exchange(launches_, {});
    work();
    auto graph = std::make_unique<counted_graph>();
    graph->launches = std::exchange(launches_, before);
    return graph;
  }
  void replay(ops::cuda::device_graph& graph) override {
    for (auto const& [name, count] : static_cast<counted_graph&>(graph).launches) {
      launches_[name] += count;
    }
  }
  void launch(ops::cuda::kernel_params const& kernel) override { ++launches_[kernel_name(kernel)]; }
  void init_workspace(ops::cuda::linear_plan const&, qpn::workspace_view) override {}
  void gemm(ops::cuda::linear_plan const&, qpn::gemm_args const& args,
            qpn::workspace_view) override {
    qpn::packed_layout const& weight = args.weight.layout;
    ++launches_[product_name(weight.n, weight.k, args.m)];
  }
  void prepack(qpn::packed_layout const&, qpn::weight_part const&, std::int64_t, std::byte*,
               qpn::prepack_report*) override {}
  [[nodiscard]] std::unique_ptr<mark> make_mark() override { return std::make_unique<mark>(); }
  void record(mark&) override {}
  void wait_for(mark const&) override {}
  [[nodiscard]] int ordinal() const noexcept override { return ordinal_; }
  void reach(device const&) override {}
  [[nodiscard]] std::shared_ptr<std::uint32_t> make_host_words(std::size_t count) override {
    return {new std::uint32_t[count](), std::default_delete<std::uint32_t[]>()};
  }
  [[nodiscard]] void* stream() const noexcept override { return nullptr; }

 private:
  class counted_graph final : public ops::cuda::device_graph {
   public:
    launch_counts launches;
  };

  qpn::device_info const info_;
  std::string const name_ = "a V100 that only counts";
  int const ordinal_;
  launch_counts launches_;
};

}  // namespace qwen38::test

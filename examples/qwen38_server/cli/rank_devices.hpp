// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <qpn/cpu/isa.hpp>
#include <string>
#include <vector>

#include "cli/load.hpp"
#include "cli/memory_plan.hpp"
#include "cli/numa.hpp"
#include "ops/backend.hpp"
#include "parallel/communicator.hpp"

namespace qwen38::ops::cuda {
class device;
}

namespace qwen38::cli {

/// Where the flags --device, --devices, --tp and --reduction put the ranks of a model.
class rank_devices {
 public:
  /// Opens the GPUs. Throws qwen38::error, which names the flag, where the flags do not fit
  /// together or the machine.
  explicit rank_devices(model_flags const& flags);
  ~rank_devices();

  /// The ends, in rank order; with --tp above 1.
  [[nodiscard]] std::vector<std::shared_ptr<parallel::communicator>> make_group(
      std::int64_t hidden_size) const;
  [[nodiscard]] std::unique_ptr<ops::backend> make_backend(int rank, int threads) const;

  [[nodiscard]] bool on_gpus() const noexcept { return !devices_.empty(); }
  /// Of the ranks' GPUs, as they are now.
  [[nodiscard]] std::vector<gpu_card> cards() const;
  /// Near each rank's GPU, with --numa auto; else none.
  [[nodiscard]] std::vector<numa_place> const& places() const noexcept { return places_; }
  /// device::reserve and device::memory of a rank's GPU.
  void reserve(int rank, std::size_t bytes) const;
  [[nodiscard]] ops::cuda::memory_ledger const& memory(int rank) const;

  /// GB/s at which rank 0's device reads memory, or the CPU with so many threads.
  [[nodiscard]] double read_rate(int threads) const;

  /// "GPU 0 (NVIDIA H200, sm_90, 132 multiprocessors)", or "CPU".
  [[nodiscard]] std::string name(int rank) const;
  /// All ranks', each once.
  [[nodiscard]] std::string names() const;

 private:
  int tp_;
  std::string reduction_;
  qpn::cpu::isa cpu_path_;
  std::vector<std::shared_ptr<ops::cuda::device>> devices_;  ///< each rank's; none on the CPU
  std::vector<numa_place> places_;
};

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_devices.hpp"

#include <algorithm>
#include <numeric>

#include "ops/cpu/cpu_backend.hpp"
#include "ops/cpu/read_rate.hpp"
#include "ops/cuda/device.hpp"
#include "ops/cuda/read_rate.hpp"
#include "parallel/in_process.hpp"
#include "support/error.hpp"

#ifdef QWEN38_WITH_CUDA
#include "ops/cuda/cuda_backend.hpp"
#include "ops/cuda/gpu_device.hpp"
#include "ops/cuda/nccl.hpp"
#include "parallel/collective_group.hpp"
#include "parallel/device_group.hpp"
#endif

namespace qwen38::cli {
namespace {

void require_cpu_flags(model_flags const& flags) {
  if (!flags.devices.empty()) {
    throw error(error_kind::invalid_argument,
                "--devices numbers GPUs: expected --device cuda with it");
  }
  if (flags.reduction != model_flags().reduction) {
    throw error(error_kind::invalid_argument,
                "--reduction " + flags.reduction + " is for GPUs: expected --device cuda with it");
  }
}

#ifdef QWEN38_WITH_CUDA
std::vector<int> chosen_gpus(model_flags const& flags) {
  std::vector<int> gpus = flags.devices;
  int const there = ops::cuda::gpu_count();
  if (gpus.empty()) {
    if (flags.tp > std::max(there, 1)) {
      throw error(error_kind::unavailable,
                  "--tp " + std::to_string(flags.tp) + ": " + std::to_string(there) +
                      " GPUs are there, expected one for each rank; --devices says which ranks "
                      "share one, e.g. --devices 0,0");
    }
    gpus.resize(static_cast<std::size_t>(flags.tp));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  if (std::ssize(gpus) != flags.tp) {
    throw error(error_kind::invalid_argument, "--devices names " + std::to_string(gpus.size()) +
                                                  " GPUs: expected one for each of the --tp " +
                                                  std::to_string(flags.tp) + " ranks");
  }
  if (std::ranges::count(gpus, gpus.front()) == std::ssize(gpus)) {
    if (flags.tp > 1 && flags.reduction != model_flags().reduction) {
      throw error(error_kind::invalid_argument,
                  "--reduction " + flags.reduction +
                      ": NCCL has one rank on a GPU, expected other --devices or "
                      "--reduction one-shot");
    }
    return gpus;
  }
  std::vector<int> sorted = gpus;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) {
    throw error(error_kind::invalid_argument,
                "--devices gives some ranks a GPU of their own and others not: expected a GPU for "
                "each rank, or one for all");
  }
  return gpus;
}
#endif

}  // namespace

rank_devices::~rank_devices() = default;

rank_devices::rank_devices(model_flags const& flags)
    : tp_(flags.tp),
      reduction_(flags.reduction),
      cpu_path_(flags.force_fallback ? qpn::cpu::isa::scalar : qpn::cpu::isa::automatic) {
  if (flags.device == "cpu") {
    require_cpu_flags(flags);
    return;
  }
#ifdef QWEN38_WITH_CUDA
  if (flags.device == "cuda") {
    std::vector<int> const gpus = chosen_gpus(flags);
    if (!flags.allow_busy_gpu) std::ranges::for_each(gpus, ops::cuda::require_idle);
    for (int gpu : gpus) {
      numa_place place;
      if (flags.numa == "auto") {
        place = find_numa_place(ops::cuda::pci_id_of_gpu(gpu));
        places_.push_back(place);
      }
      numa_visit const visit(place);  // takes the device's pinned memory there
      devices_.push_back(ops::cuda::open_gpu(gpu));
    }
    return;
  }
  std::string const expected = "cpu or cuda";
#else
  std::string const expected = "cpu";
#endif
  throw error(error_kind::unsupported,
              "--device " + flags.device + " is not in this build: expected " + expected);
}

std::unique_ptr<ops::backend> rank_devices::make_backend(int rank, int threads) const {
#ifdef QWEN38_WITH_CUDA
  if (!devices_.empty()) {
    return ops::cuda::make_backend(devices_[static_cast<std::size_t>(rank)]);
  }
#else
  static_cast<void>(rank);         // all run on the CPU
#endif
  return ops::cpu::make_backend(threads, cpu_path_);
}

std::vector<std::shared_ptr<parallel::communicator>> rank_devices::make_group(
    std::int64_t hidden_size) const {
#ifdef QWEN38_WITH_CUDA
  if (!devices_.empty() && reduction_ == model_flags().reduction) {
    return parallel::make_device_group(devices_, {.max_cols = hidden_size});
  }
  if (!devices_.empty()) {
    bool const any = reduction_ == "nccl-all-reduce";
    return parallel::make_collective_group(
        devices_, ops::cuda::open_nccl(devices_),
        {.max_cols = hidden_size,
         .order = any ? parallel::sum_order::any : parallel::sum_order::by_rank});
  }
#else
  static_cast<void>(hidden_size);  // ranks on the CPU hold nothing for their exchange
#endif
  return parallel::make_in_process_group(tp_);
}

std::vector<gpu_card> rank_devices::cards() const {
  std::vector<gpu_card> found;
#ifdef QWEN38_WITH_CUDA
  for (int rank = 0; rank < std::ssize(devices_); ++rank) {
    ops::cuda::device const& own = *devices_[static_cast<std::size_t>(rank)];
    auto const [free, total] = ops::cuda::memory_of_gpu(own.ordinal());
    found.push_back({name(rank), own.info(), total, total - free});
  }
#endif
  return found;
}

void rank_devices::reserve(int rank, std::size_t bytes) const {
  devices_[static_cast<std::size_t>(rank)]->reserve(bytes);
}

ops::cuda::memory_ledger const& rank_devices::memory(int rank) const {
  return devices_[static_cast<std::size_t>(rank)]->memory();
}

double rank_devices::read_rate(int threads) const {
  constexpr std::size_t on_gpu = std::size_t{2} << 30;  // 40 times an L2 cache
  constexpr std::size_t on_cpu = std::size_t{256} << 20;
  if (devices_.empty()) return ops::cpu::measure_read_rate(threads, on_cpu);
  return ops::cuda::measure_read_rate(*devices_.front(), on_gpu);
}

std::string rank_devices::name(int rank) const {
#ifdef QWEN38_WITH_CUDA
  if (!devices_.empty()) {
    ops::cuda::device const& own = *devices_[static_cast<std::size_t>(rank)];
    return "GPU " + std::to_string(own.ordinal()) + " (" + own.name() + ")";
  }
#else
  static_cast<void>(rank);
#endif
  return "CPU";
}

std::string rank_devices::names() const {
  std::vector<std::string> all;
  for (int rank = 0; rank < tp_; ++rank) {
    if (std::string own = name(rank); std::ranges::find(all, own) == all.end()) {
      all.push_back(std::move(own));
    }
  }
  return std::accumulate(all.begin() + 1, all.end(), all.front(),
                         [](std::string const& a, std::string const& b) { return a + ", " + b; });
}

}  // namespace qwen38::cli

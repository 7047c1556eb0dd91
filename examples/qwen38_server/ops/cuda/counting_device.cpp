// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/counting_device.hpp"

#include <algorithm>
#include <cstring>

namespace qwen38::ops::cuda {
namespace {

// Addresses are numbers that nobody looks behind; they begin here.
constexpr std::uintptr_t first_address = std::uintptr_t{1} << 40;

}  // namespace

void* counting_device::allocate(std::size_t bytes, std::string const& what) {
  return reinterpret_cast<void*>(first_address + ledger_.take(bytes, what));
}

void counting_device::release(void* memory) noexcept {
  ledger_.give_back(reinterpret_cast<std::uintptr_t>(memory) - first_address);
}

void counting_device::download(void* to, byte_lines /*from*/, std::size_t width,
                               std::size_t height) {
  std::memset(to, 0, width * height);
}

std::unique_ptr<device_graph> counting_device::capture_alone(std::function<void()> const& work) {
  std::uint64_t const before = launches_;
  work();
  longest_capture_ = std::max(longest_capture_, launches_ - before);
  return std::make_unique<device_graph>();
}

void counting_device::launch(kernel_params const& kernel) {
  std::visit([this](auto const& params) { launches_ += params.blocks() > 0 ? 1 : 0; }, kernel);
}

void counting_device::gemm(linear_plan const& plan, qpn::gemm_args const& args,
                           qpn::workspace_view workspace) {
  std::visit(
      [&](auto const& of) {
        qpn::status const checked = qpn::detail::check_gemm(of, args, workspace);
        if (!checked.ok()) throw error(error_kind::internal, checked.what);
        if (args.census != nullptr) args.census->count(qpn::route(of, args.m));
      },
      plan);
  ++launches_;
}

std::shared_ptr<std::uint32_t> counting_device::make_host_words(std::size_t count) {
  return {new std::uint32_t[count](), std::default_delete<std::uint32_t[]>()};
}

}  // namespace qwen38::ops::cuda

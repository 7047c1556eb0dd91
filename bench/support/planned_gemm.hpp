// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <qpn/gemm_types.hpp>
#include <string>
#include <variant>

#include "gpu/device_memory.hpp"
#include "support/machine.hpp"

namespace qpn::bench {

/// What make_gemm_plan says to a problem on a weight of this layout.
[[nodiscard]] status plan_status(packed_layout const& layout, gemm_problem const& problem,
                                 device_info const& device);

/// A plan for calls with max_m rows, and a workspace of its own. Throws std::runtime_error with the
/// library's words.
class planned_gemm {
 public:
  planned_gemm(packed_layout const& layout, gemm_problem const& problem, machine const& gpu);

  /// Launches and returns.
  void launch(gemm_args const& args, cudaStream_t stream) const;

  /// Whether calls with m rows may have x in fragment order.
  [[nodiscard]] bool takes_fragments(std::int64_t m) const;

  /// "sm70/nvfp4/mt2"
  [[nodiscard]] std::string route_name(std::int64_t m) const;

 private:
  std::variant<gemm_plan<nvfp4>, gemm_plan<fp8>> plan_;
  std::optional<test::device_memory> workspace_;
};

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#include "support/planned_gemm.hpp"

#include <qpn/gemm_route.hpp>

#include "support/library_calls.hpp"

namespace qpn::bench {

namespace {

using any_plan = std::variant<gemm_plan<nvfp4>, gemm_plan<fp8>>;

status make_any_plan(packed_layout const& layout, gemm_problem const& problem,
                     device_info const& device, any_plan& out) {
  if (layout.format == format_id::fp8) out = gemm_plan<fp8>();
  return std::visit([&](auto& plan) { return make_gemm_plan(layout, problem, device, plan); }, out);
}

}  // namespace

status plan_status(packed_layout const& layout, gemm_problem const& problem,
                   device_info const& device) {
  any_plan plan;
  return make_any_plan(layout, problem, device, plan);
}

planned_gemm::planned_gemm(packed_layout const& layout, gemm_problem const& problem,
                           machine const& gpu) {
  test::require(make_any_plan(layout, problem, gpu.info(), plan_));
  std::visit(
      [&](auto const& plan) {
        workspace_.emplace(plan.workspace_bytes);
        workspace_view const workspace{workspace_->data(), workspace_->size()};
        test::require(call_init_workspace(plan, workspace, gpu.stream()));
      },
      plan_);
  gpu.wait();
}

void planned_gemm::launch(gemm_args const& args, cudaStream_t stream) const {
  workspace_view const workspace{workspace_->data(), workspace_->size()};
  test::require(std::visit(
      [&](auto const& plan) { return call_gemm(plan, args, workspace, stream); }, plan_));
}

bool planned_gemm::takes_fragments(std::int64_t m) const {
  return std::visit([m](auto const& plan) { return qpn::takes_fragments(plan, m); }, plan_);
}

std::string planned_gemm::route_name(std::int64_t m) const {
  return std::visit([m](auto const& plan) { return qpn::route_name(route(plan, m)); }, plan_);
}

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
// One header of the installed tree and nothing else: every entry point it has, for every format.
#include <qpn/gemm.cuh>

template <class Format>
qpn::status run(qpn::gemm_plan<Format> const& plan, qpn::gemm_args const& args,
                qpn::workspace_view workspace, cudaStream_t stream) {
  qpn::status const ready = qpn::init_workspace(plan, workspace, stream);
  return ready.ok() ? qpn::gemm(plan, args, workspace, stream) : ready;
}

template qpn::status run(qpn::gemm_plan<qpn::nvfp4> const&, qpn::gemm_args const&,
                         qpn::workspace_view, cudaStream_t);
template qpn::status run(qpn::gemm_plan<qpn::fp8> const&, qpn::gemm_args const&,
                         qpn::workspace_view, cudaStream_t);
template qpn::status run(qpn::gemm_plan<qpn::dense16> const&, qpn::gemm_args const&,
                         qpn::workspace_view, cudaStream_t);

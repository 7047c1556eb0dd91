// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qpn/gemm_choice.hpp"

// Written by gemm_tune (docs/gemm_tune.md). Behind each row: the change of the time of the rules at
//   its last m.
// device: NVIDIA H200, compute capability 9.0, 132 multiprocessors, L2 60 MiB
// clocks: SM 1980 MHz, memory 3201 MHz (NVML, while the GPU reads memory)
// toolkit: nvcc of CUDA 13.0.88, driver 580.159.04 for CUDA 13.0
// command: gemm_tune --shape
//   tp4.gate_up,tp1.gate_up,tp4.down,tp4.gdn_in,tp4.gdn_out,tp4.attn_qkv,tp1.down,tp1.gdn_in,tp1.gdn_out,tp1.attn_qkv
//   --m 1,8,16,24,32,48,64,80,96 --most-ms 5 --replays 5 --header gemm_table_h200.hpp --json
//   tune.json

namespace qpn {

inline constexpr gemm_tuning_row gemm_table_h200[] = {
    {format_id::nvfp4, 8704, 5120, 25, 32, {gemm_method::mt2}},                   // -2.2 %
    {format_id::nvfp4, 34816, 5120, 49, 64, {gemm_method::group, 64, 2}},         // -3.4 %
    {format_id::nvfp4, 34816, 5120, 65, 80, {gemm_method::group, 96, 1}},         // -5.7 %
    {format_id::nvfp4, 34816, 5120, 81, 96, {gemm_method::group, 96, 1}},         // -5.8 %
    {format_id::nvfp4, 5120, 4352, 17, 24, {gemm_method::mt1}},                   // -7.2 %
    {format_id::nvfp4, 5120, 4352, 25, 32, {gemm_method::mt2, 0, 0, 0, 0, 128}},  // -7.5 %
    {format_id::nvfp4, 5120, 4352, 33, 48, {gemm_method::mt2, 0, 0, 0, 0, 128}},  // -17.9 %
    {format_id::nvfp4, 5120, 4352, 49, 64, {gemm_method::mt2, 0, 0, 0, 0, 128}},  // -5.7 %
    {format_id::fp8, 4096, 5120, 17, 24, {gemm_method::mt2}},                     // -18.3 %
    {format_id::fp8, 4096, 5120, 25, 32, {gemm_method::mt2}},                     // -16.6 %
    {format_id::fp8, 5120, 1536, 33, 48, {gemm_method::mt2}},                     // -18.6 %
    {format_id::fp8, 3584, 5120, 17, 24, {gemm_method::mt2}},                     // -18.5 %
    {format_id::fp8, 3584, 5120, 25, 32, {gemm_method::mt2}},                     // -17.3 %
};

}  // namespace qpn

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "ops/cuda/attention.hpp"
#include "ops/cuda/choose.hpp"
#include "ops/cuda/gdn.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope_kv.hpp"
#include "ops/cuda/rows.hpp"

namespace qwen38::ops::cuda {

/// One launch of any kernel of the backend: its parameters say which.
using kernel_params =
    std::variant<embed_params, copy_rows_params, pack_tokens_params, choose_params, rms_norm_params,
                 store_kv_params, prepare_queries_params, attention_params, attention_output_params,
                 gdn_prepare_params, gdn_recurrence_params, gdn_norm_params, gdn_shift_params>;

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <variant>

#include "ops/cuda/attention_output.hpp"
#include "ops/cuda/attention_simt.hpp"
#include "ops/cuda/attention_tiles.hpp"
#include "ops/cuda/best_of_ranks.hpp"
#include "ops/cuda/choose.hpp"
#include "ops/cuda/gdn_chunk_factors.hpp"
#include "ops/cuda/gdn_chunk_scan.hpp"
#include "ops/cuda/gdn_norm.hpp"
#include "ops/cuda/gdn_prepare.hpp"
#include "ops/cuda/gdn_recurrence.hpp"
#include "ops/cuda/gdn_shift.hpp"
#include "ops/cuda/gdn_short.hpp"
#include "ops/cuda/merge_lists.hpp"
#include "ops/cuda/peer_gather.hpp"
#include "ops/cuda/peer_reduce.hpp"
#include "ops/cuda/rank_sum.hpp"
#include "ops/cuda/read_words.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope_kv.hpp"
#include "ops/cuda/rows.hpp"

namespace qwen38::ops::cuda {

/// One launch of any kernel of the backend: its parameters say which.
using kernel_params =
    std::variant<embed_params, copy_rows_params, pack_tokens_params, choose_params, rms_norm_params,
                 store_kv_params, prepare_queries_params, prepare_heads_params,
                 attention_simt_params, attention_few_params, attention_pair_params,
                 attention_some_params, attention_few_folded_params, attention_some_folded_params,
                 attention_many_folded_params, attention_output_params, gdn_prepare_params,
                 gdn_chunk_factors_params, gdn_chunk_scan_params, gdn_recurrence_params<1>,
                 gdn_recurrence_params<2>, gdn_norm_params, gdn_shift_params, gdn_short_params<1>,
                 gdn_short_params<2>, rank_sum_params, peer_reduce_params, peer_gather_params,
                 merge_lists_params, best_of_ranks_params, read_words_params>;

}  // namespace qwen38::ops::cuda

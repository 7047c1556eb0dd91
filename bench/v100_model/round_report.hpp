// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "round_time.hpp"

namespace qpn::bench::v100 {

/// Rounds with 0, 3, 7 and 15 drafts at live contexts of 512 to 131072, contexts one by one.
[[nodiscard]] std::vector<round_time> make_rounds(round_timer& timer);

/// An array of {drafts, context, launches, round_ms, predecessor_ms, products_ms, head_ms,
/// attention_ms, gdn_ms, rows_ms, exchange_ms, gaps_ms, host_ms}.
[[nodiscard]] std::string round_json_of(std::vector<round_time> const& rounds);

/// The tables of docs/benchmarks.md about rounds: parts, phases, contexts, launches, constants.
[[nodiscard]] std::string round_markdown_of(std::vector<round_time> const& rounds,
                                            round_timer& timer);

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/causal_lm.hpp"

namespace qwen38::model {

/// Makes a model do once each kind of work that it will ever do: a prompt's chunk and its MTP rows,
/// a state saved and resumed, rounds of every kind of choice with and without drafts. Memory that
/// backends take when they first need it is there afterwards, and rounds of one lane are recorded.
/// On lane 0 and the first pages; what is in them is lost.
/// @param most_drafts  of a round: 1 to 15; fewer take less time, and the same memory
void rehearse(causal_lm& lm, int most_drafts = 15);

}  // namespace qwen38::model

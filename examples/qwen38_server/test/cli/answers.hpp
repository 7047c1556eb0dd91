// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cli/collector.hpp"
#include "cli/load.hpp"

namespace qwen38::test {

using answers = std::vector<std::vector<std::int32_t>>;

/// The ids that answer the requests, `together` of them at a time.
inline answers answer(engine::engine& engine, std::vector<engine::request> requests,
                      std::size_t together) {
  std::vector<std::shared_ptr<cli::collector>> outputs;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (outputs.size() >= together) static_cast<void>(outputs[i - together]->wait());
    outputs.push_back(std::make_shared<cli::collector>());
    engine.submit(std::move(requests[i]), outputs.back());
  }
  answers ids;
  for (auto const& output : outputs) {
    engine::result const outcome = output->wait();
    EXPECT_NE(outcome.finish, engine::finish_reason::failed) << outcome.message;
    ids.push_back(output->ids);
  }
  return ids;
}

/// logits[first] - logits[second] for the token after `ids`; the model's engine must rest.
inline float margin(cli::loaded_model const& loaded, std::vector<std::int32_t> const& ids,
                    std::int32_t first, std::int32_t second) {
  model::causal_lm& lm = *loaded.model;
  auto const& limits = lm.get_limits();
  auto const pass = static_cast<std::size_t>(limits.prefill_chunk);
  std::vector<std::int32_t> pages(ids.size() / static_cast<std::size_t>(limits.page_tokens) + 2);
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  lm.begin(0, pages);
  std::span<float const> logits;
  std::span<std::int32_t const> const all = ids;
  for (std::size_t at = 0; at < ids.size(); at += pass) {
    auto const part = all.subspan(at, std::min(pass, ids.size() - at));
    model::sequence_rows const rows{0, static_cast<std::int64_t>(at), part, false,
                                    std::ssize(part) - 1};
    logits = lm.forward({&rows, 1});
  }
  return logits[static_cast<std::size_t>(first)] - logits[static_cast<std::size_t>(second)];
}

struct agreement {
  std::size_t same = 0;  ///< answers
  float widest = 0;      ///< margin of the others where they part, by the model that is compared to
};

/// How `got` agrees with `wanted`, the answers of `reference` to the requests: where an answer
/// parts the other id must be as good but for `near_tie`.
inline agreement expect_near_ties(cli::loaded_model const& reference,
                                  std::vector<engine::request> const& requests, answers const& got,
                                  answers const& wanted, float near_tie) {
  agreement all;
  EXPECT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    if (got[i] == wanted[i]) {
      ++all.same;
      continue;
    }
    auto const [here, there] = std::ranges::mismatch(got[i], wanted[i]);
    if (here == got[i].end() || there == wanted[i].end()) {
      ADD_FAILURE() << "request " << i << ": one answer begins with the other";
      continue;
    }
    std::vector<std::int32_t> ids = requests[i].prompt_ids;
    ids.insert(ids.end(), wanted[i].begin(), there);
    float const distance = margin(reference, ids, *there, *here);
    EXPECT_GE(distance, 0) << "request " << i;
    EXPECT_LT(distance, near_tie) << "request " << i << " at token " << there - wanted[i].begin();
    all.widest = std::max(all.widest, distance);
  }
  return all;
}

}  // namespace qwen38::test

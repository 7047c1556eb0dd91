// SPDX-License-Identifier: Apache-2.0
#include "engine/logprobs.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace qwen38::engine {

token_logprobs logprobs_of(std::span<float const> logits, std::int32_t id, int top) {
  auto const likeliest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (float const logit : logits) sum += std::exp(static_cast<double>(logit) - likeliest);
  double const log_sum = likeliest + std::log(sum);
  auto const one = [&](std::int32_t at) {
    return token_logprob{at, static_cast<double>(logits[static_cast<std::size_t>(at)]) - log_sum};
  };
  token_logprobs out;
  out.chosen = one(id);
  if (top == 0) return out;
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  auto const end = ids.begin() + std::min<std::ptrdiff_t>(top, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](std::int32_t a, std::int32_t b) {
    float const la = logits[static_cast<std::size_t>(a)];
    float const lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  });
  for (auto at = ids.begin(); at != end; ++at) out.top.push_back(one(*at));
  return out;
}

}  // namespace qwen38::engine

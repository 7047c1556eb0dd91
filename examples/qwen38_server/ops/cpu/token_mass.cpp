// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/token_mass.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <qpn/detail/candidate_key.hpp>

namespace qwen38::ops::cpu {
namespace {

constexpr std::size_t sorted_below = 32;  // a sort is quicker than further partitions

std::uint64_t sum(std::span<candidate const> candidates) {
  std::uint64_t total = 0;
  for (candidate const& one : candidates) total += one.mass;
  return total;
}

}  // namespace

mass_point find_mass(std::span<candidate> candidates, std::uint64_t point) {
  std::uint64_t before = 0;
  while (candidates.size() > sorted_below) {
    auto const middle = candidates.begin() + std::ssize(candidates) / 2;
    std::nth_element(candidates.begin(), middle, candidates.end(), comes_before);
    auto const likelier = candidates.first(candidates.size() / 2);
    std::uint64_t const through = before + sum(likelier);
    if (point < through) {
      candidates = likelier;
    } else {
      before = through;
      candidates = candidates.subspan(likelier.size());
    }
  }
  std::sort(candidates.begin(), candidates.end(), comes_before);
  for (candidate const& one : candidates) {
    before += one.mass;
    if (point < before) return {one.id, before};
  }
  return {candidates.back().id, before};
}

ranked_id choose_token(std::span<float const> logits, row_choice const& choice,
                       std::vector<candidate>& candidates) {
  token_choice const& how = choice.how;
  std::uint64_t best = qpn::detail::no_candidate;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    best = std::max(best, qpn::detail::candidate_key(logits[id], static_cast<std::uint32_t>(id)));
  }
  float const top = qpn::detail::candidate_value(best);
  ranked_id const likeliest{top, qpn::detail::candidate_id(best)};
  if (how.is_greedy() || !std::isfinite(top)) return likeliest;

  // Each filter keeps a beginning of the order of comes_before, so their order matters only for the
  // mass that top_p sees.
  candidates.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    std::uint64_t const distance = token_distance(logits[id], top, how.temperature);
    if (distance > how.reach) continue;
    candidates.push_back({logits[id], static_cast<std::int32_t>(id), token_mass(distance)});
  }
  std::span<candidate> kept = candidates;
  auto const k = static_cast<std::size_t>(how.top_k);
  if (k > 0 && k < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + how.top_k, kept.end(), comes_before);
    kept = kept.first(k);
  }
  std::uint64_t mass = sum(kept);
  if (how.top_p < 1) mass = find_mass(kept, wanted_mass(how.top_p, mass) - 1).through;
  auto const bits = random_bits(how.seed, choice.position, random_purpose::next_token);
  std::int32_t const id = find_mass(kept, scale_bits(bits, mass)).id;
  return {logits[static_cast<std::size_t>(id)], id};
}

}  // namespace qwen38::ops::cpu

// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "engine/random.hpp"
#include "support/error.hpp"

namespace qwen38::engine {
namespace {

constexpr float greedy_below = 1e-5F;
constexpr float banned = -std::numeric_limits<float>::infinity();

void require(bool holds, char const* field, char const* expected, double value) {
  if (holds) return;
  throw error(error_kind::invalid_argument, std::string(field) + ": expected " + expected +
                                                ", got " + std::to_string(value) + '.');
}

void check_finite(std::span<float const> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) continue;
    throw error(error_kind::internal,
                "The model's logit of id " + std::to_string(id) + " is not a finite number.");
  }
}

/// The id of the largest logit, the lowest of equal ones.
std::int32_t largest(std::span<float const> logits) {
  auto const best = std::max_element(logits.begin(), logits.end());
  if (best == logits.end() || *best == banned) {
    throw error(error_kind::internal, "No token may be sampled: every id is banned.");
  }
  return static_cast<std::int32_t>(best - logits.begin());
}

/// Penalties of any size leave a logit finite.
float clamped(float logit) {
  return std::clamp(logit, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
}

void ban_unmasked(std::span<std::uint32_t const> mask, std::span<float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if ((mask[id / 32] >> id % 32 & 1U) == 0) logits[id] = banned;
  }
}

std::uint64_t total_mass(std::span<candidate const> candidates) {
  std::uint64_t total = 0;
  for (candidate const& one : candidates) total += one.mass;
  return total;
}

}  // namespace

void check_sampling(sampling_params const& params) {
  auto const finite = [](float value) { return std::isfinite(value); };
  float const t = params.temperature;
  require(finite(t) && t >= 0, "temperature", "a number of at least 0", t);
  require(params.top_p >= 0 && params.top_p <= 1, "top_p", "a number from 0 to 1", params.top_p);
  require(params.min_p >= 0 && params.min_p <= 1, "min_p", "a number from 0 to 1", params.min_p);
  require(params.top_k >= 0, "top_k", "a number of at least 0", params.top_k);
  float const r = params.repetition_penalty;
  require(finite(r) && r > 0, "repetition_penalty", "a number above 0", r);
  float const f = params.frequency_penalty;
  require(finite(f), "frequency_penalty", "a finite number", f);
  float const p = params.presence_penalty;
  require(finite(p), "presence_penalty", "a finite number", p);
}

sampler::sampler(sampling_params const& params, std::span<std::int32_t const> stop_ids,
                 std::int32_t valid_ids)
    : params_(params), stop_ids_(stop_ids.begin(), stop_ids.end()), valid_ids_(valid_ids) {}

bool sampler::penalises() const noexcept {
  return params_.repetition_penalty != 1 || params_.frequency_penalty != 0 ||
         params_.presence_penalty != 0;
}

void sampler::add_prompt(std::span<std::int32_t const> ids) {
  if (!penalises()) return;
  for (std::int32_t id : ids) counts_.try_emplace(id, 0);
}

void sampler::add(std::int32_t id) {
  if (penalises()) ++counts_[id];
}

void sampler::penalise(std::span<float> logits) const {
  for (auto const& [id, count] : counts_) {
    float& logit = logits[static_cast<std::size_t>(id)];
    float const r = params_.repetition_penalty;
    logit = clamped(logit > 0 ? logit / r : logit * r);
    if (count == 0) continue;
    logit = clamped(logit - params_.frequency_penalty * static_cast<float>(count));
    logit = clamped(logit - params_.presence_penalty);
  }
}

std::int32_t sampler::sample(std::span<float const> logits, std::int64_t position,
                             bool without_stop_ids, std::span<std::uint32_t const> mask,
                             sampler_scratch& scratch) const {
  logits = logits.first(static_cast<std::size_t>(valid_ids_));
  check_finite(logits);
  bool const bans = without_stop_ids && !stop_ids_.empty();
  if (bans || !counts_.empty() || !mask.empty()) {
    scratch.logits.assign(logits.begin(), logits.end());
    penalise(scratch.logits);
    for (std::int32_t id : stop_ids_) {
      if (bans && id < valid_ids_) scratch.logits[static_cast<std::size_t>(id)] = banned;
    }
    if (!mask.empty()) ban_unmasked(mask, scratch.logits);
    logits = scratch.logits;
  }
  if (params_.temperature < greedy_below) return largest(logits);
  return draw(logits, position, scratch.candidates);
}

std::int32_t sampler::draw(std::span<float const> logits, std::int64_t position,
                           std::vector<candidate>& candidates) const {
  // Each filter keeps a beginning of the order of comes_before, so their order matters only for the
  // mass that top_p sees.
  double const top = logits[static_cast<std::size_t>(largest(logits))];
  auto const temperature = static_cast<double>(params_.temperature);
  double const floor = std::max<double>(params_.min_p, 1.0 / static_cast<double>(full_mass));
  double const lowest = std::log(floor) - 1;  // in doubt exp() decides
  candidates.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    double const exponent = (static_cast<double>(logits[id]) - top) / temperature;
    if (exponent < lowest) continue;
    double const ratio = std::exp(exponent);
    if (ratio < floor) continue;
    candidates.push_back({logits[id], static_cast<std::int32_t>(id),
                          static_cast<std::uint64_t>(ratio * static_cast<double>(full_mass))});
  }
  std::span<candidate> kept = candidates;
  auto const k = static_cast<std::size_t>(params_.top_k);
  if (k > 0 && k < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + params_.top_k, kept.end(), comes_before);
    kept = kept.first(k);
  }
  std::uint64_t mass = total_mass(kept);
  if (params_.top_p < 1) {
    auto const share = std::ceil(static_cast<double>(params_.top_p) * static_cast<double>(mass));
    auto const reached = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, mass);
    mass = find_mass(kept, reached - 1).through;
  }
  auto const bits = random_bits(params_.seed, position, random_purpose::next_token);
  return find_mass(kept, scale_bits(bits, mass)).id;
}

}  // namespace qwen38::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "support/error.hpp"

namespace qwen38::engine {
namespace {

constexpr float banned = -std::numeric_limits<float>::infinity();

void require(bool holds, char const* field, char const* expected, double value) {
  if (holds) return;
  throw error(error_kind::invalid_argument, std::string(field) + ": expected " + expected +
                                                ", got " + std::to_string(value) + '.');
}

[[noreturn]] void refuse_logit(std::int64_t id) {
  throw error(error_kind::internal,
              "The model's logit of id " + std::to_string(id) + " is not a finite number.");
}
[[noreturn]] void refuse_all() {
  throw error(error_kind::internal, "No token may be sampled: every id is banned.");
}

void check_finite(std::span<float const> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id]) && logits[id] != banned)
      refuse_logit(static_cast<std::int64_t>(id));
  }
}

void ban_unmasked(std::span<std::uint32_t const> mask, std::span<float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if ((mask[id / 32] >> id % 32 & 1U) == 0) logits[id] = banned;
  }
}

/// Tokens at least min_p times as likely as the likeliest.
std::uint64_t reach_of(float min_p) {
  double const digits = -std::log2(static_cast<double>(min_p));  // infinity of 0
  double const scaled = digits * static_cast<double>(std::uint64_t{1} << 48);
  return scaled < static_cast<double>(ops::full_reach) ? static_cast<std::uint64_t>(scaled)
                                                       : ops::full_reach;
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
    : choice_{params.temperature,
              params.top_p,
              params.top_k,
              reach_of(params.min_p),
              params.seed,
              {params.repetition_penalty, params.frequency_penalty, params.presence_penalty}},
      stop_ids_(stop_ids.begin(), stop_ids.end()),
      valid_ids_(valid_ids) {}

std::int32_t checked_token(ops::ranked_id const& chosen) {
  if (chosen.id < 0 || chosen.value == banned) refuse_all();
  if (!std::isfinite(chosen.value)) refuse_logit(chosen.id);
  return chosen.id;
}

ops::token_choice const* sampler::choice(bool without_stop_ids) const noexcept {
  bool const bans = without_stop_ids && !stop_ids_.empty();
  return !bans && std::ssize(seen_) <= ops::max_seen ? &choice_ : nullptr;
}

std::int32_t& sampler::count_of(std::int32_t id) {
  auto const [found, is_new] = places_.try_emplace(id, seen_.size());
  if (is_new) seen_.push_back({id, 0});
  return seen_[found->second].count;
}

void sampler::add_prompt(std::span<std::int32_t const> ids) {
  if (!choice_.penalties.any()) return;
  for (std::int32_t id : ids) static_cast<void>(count_of(id));
}

void sampler::add(std::int32_t id) {
  if (choice_.penalties.any()) ++count_of(id);
}

std::int32_t sampler::sample(std::span<float const> logits, std::int64_t position,
                             bool without_stop_ids, std::span<std::uint32_t const> mask,
                             sampler_scratch& scratch) const {
  logits = logits.first(static_cast<std::size_t>(valid_ids_));
  check_finite(logits);
  bool const bans = without_stop_ids && !stop_ids_.empty();
  if (bans || !seen_.empty() || !mask.empty()) {
    scratch.logits.assign(logits.begin(), logits.end());
    for (ops::token_count const& one : seen_) {
      float& logit = scratch.logits[static_cast<std::size_t>(one.id)];
      logit = ops::penalised_logit(logit, choice_.penalties, one.count);
    }
    for (std::int32_t id : stop_ids_) {
      if (bans && id < valid_ids_) scratch.logits[static_cast<std::size_t>(id)] = banned;
    }
    if (!mask.empty()) ban_unmasked(mask, scratch.logits);
    logits = scratch.logits;
  }
  return checked_token(ops::cpu::choose_token(logits, {choice_, position}, scratch.candidates));
}

}  // namespace qwen38::engine

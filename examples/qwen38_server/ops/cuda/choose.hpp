// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <qpn/detail/candidate_key.hpp>

#include "ops/cuda/lane_math.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/ranked_id.hpp"
#include "ops/token_choice.hpp"

namespace qwen38::ops::cuda {

/// chosen[r] as choices[r] says, from the first `valid` columns of row r; one CTA a row. Penalties
/// are left in the logits. Tokens are never sorted: each filter and the draw look for the
/// candidate_key at a point of the cumulative weight, four bits of the key in a pass over the row.
/// Weights are integers, so no order matters.
struct choose_params {
  static constexpr int threads = 512;
  static constexpr int min_blocks = 1;
  static constexpr int warps = threads / warp_size;
  static constexpr int digits = 16;                     ///< of four bits
  static constexpr int totals_at = warps * digits * 8;  ///< u64 [digit], behind [warp][digit]
  static constexpr int shared_bytes = totals_at + digits * 8;
  static constexpr int most_drafts = 15;  ///< before a row of its span

  row_choice const* choices = nullptr;
  // Of rows with penalties, as in pass_view.
  span_entry const* spans = nullptr;
  std::int32_t const* row_spans = nullptr;
  std::int32_t const* ids = nullptr;
  token_count const* seen = nullptr;
  ranked_id const* tokens = nullptr;  ///< of ids that are places
  float* logits = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int32_t valid = 0;
  ranked_id* chosen = nullptr;

  [[nodiscard]] std::int64_t blocks() const { return rows; }
};

/// A row and what is still kept of it.
struct choose_row {
  float const* logits = nullptr;
  std::int32_t valid = 0;
  float top = 0;
  token_choice how;
  std::uint64_t lowest = 0;  ///< key of the last token kept

  /// Of a token kept: 1, or its mass.
  [[nodiscard]] QPN_HD std::uint64_t weight(float logit, std::uint64_t key, bool by_mass) const {
    if (key < lowest) return 0;
    std::uint64_t const distance = token_distance(logit, top, how.temperature);
    if (distance > how.reach) return 0;
    return by_mass ? token_mass(distance) : 1;
  }
};

template <class Lane>
QPN_HD std::uint64_t shuffle_long(Lane& lane, std::uint64_t value, int mask) {
  std::uint32_t const low = lane.shuffle_xor(static_cast<std::uint32_t>(value), mask);
  std::uint32_t const high = lane.shuffle_xor(static_cast<std::uint32_t>(value >> 32), mask);
  return std::uint64_t{high} << 32 | low;
}

/// The largest key of the row, in every thread.
template <class Lane>
QPN_HD std::uint64_t largest_key(Lane& lane, float const* logits, std::int32_t valid) {
  std::uint64_t best = qpn::detail::no_candidate;
  for (std::int32_t i = lane.thread(); i < valid; i += choose_params::threads) {
    std::uint64_t const key =
        qpn::detail::candidate_key(lane.load(logits + i), static_cast<std::uint32_t>(i));
    best = key > best ? key : best;
  }
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    std::uint64_t const other = shuffle_long(lane, best, mask);
    best = other > best ? other : best;
  }
  if (lane.thread() % warp_size == 0) lane.shared_store(lane.thread() / warp_size * 8, best);
  lane.sync_block();
  for (int warp = 0; warp < choose_params::warps; ++warp) {
    std::uint64_t const other = lane.template shared_load<std::uint64_t>(warp * 8);
    best = other > best ? other : best;
  }
  lane.sync_block();
  return best;
}

/// Totals, in shared memory, of the weights of tokens whose keys agree with `prefix` in the bits of
/// `known`, by the four bits from `shift` on.
template <class Lane>
QPN_HD void sum_digits(Lane& lane, choose_row const& row, bool by_mass, std::uint64_t prefix,
                       std::uint64_t known, int shift) {
  using params = choose_params;
  std::uint64_t sums[params::digits] = {};
  QPN_NO_UNROLL
  for (std::int32_t i = lane.thread(); i < row.valid; i += params::threads) {
    float const logit = lane.load(row.logits + i);
    std::uint64_t const key = qpn::detail::candidate_key(logit, static_cast<std::uint32_t>(i));
    if (((key ^ prefix) & known) != 0) continue;
    std::uint64_t const weight = row.weight(logit, key, by_mass);
    auto const digit = static_cast<int>(key >> shift & 15);
    QPN_UNROLL
    for (int d = 0; d < params::digits; ++d) sums[d] += d == digit ? weight : 0;
  }
  // Each step hands half of the sums over, so that two lanes end with the same one of them.
  int const id = lane.thread() % warp_size;
  int kept = 0;
  QPN_UNROLL
  for (int step = 0; step < 4; ++step) {
    int const mask = 16 >> step;
    int const half = 8 >> step;
    bool const upper = (id & mask) != 0;
    QPN_UNROLL
    for (int e = 0; e < 8; ++e) {
      if (e >= half) continue;
      std::uint64_t const own = upper ? sums[half + e] : sums[e];
      std::uint64_t const other = upper ? sums[e] : sums[half + e];
      sums[e] = own + shuffle_long(lane, other, mask);
    }
    kept += upper ? half : 0;
  }
  sums[0] += shuffle_long(lane, sums[0], 1);
  int const warp = lane.thread() / warp_size;
  if (id % 2 == 0) lane.shared_store((warp * params::digits + kept) * 8, sums[0]);
  lane.sync_block();
  if (lane.thread() < params::digits) {
    std::uint64_t total = 0;
    for (int w = 0; w < params::warps; ++w) {
      total += lane.template shared_load<std::uint64_t>((w * params::digits + lane.thread()) * 8);
    }
    lane.shared_store(params::totals_at + lane.thread() * 8, total);
  }
  lane.sync_block();
}

/// The key of the token at point_of(total weight) of the cumulative weight, likelier tokens first;
/// no_candidate where that lies behind all of them.
template <class Lane, class Point>
QPN_HD std::uint64_t find_weight(Lane& lane, choose_row const& row, bool by_mass,
                                 Point const& point_of) {
  using params = choose_params;
  int low_digits = 1;  // in which ids differ; the bits above are 1 in every key's lower half
  while ((row.valid - 1) >> (4 * low_digits) != 0) ++low_digits;
  std::uint64_t const all_ids = 0xffffffffU;
  std::uint64_t prefix = 0;
  std::uint64_t before = 0;
  std::uint64_t point = 0;
  QPN_NO_UNROLL
  for (int level = 0; level < 8 + low_digits; ++level) {
    int const shift = level < 8 ? 60 - 4 * level : 4 * (low_digits - 1 - (level - 8));
    if (level == 8) prefix |= all_ids & all_ids << (4 * low_digits);
    std::uint64_t const known = level == 0 ? 0 : ~std::uint64_t{0} << (shift + 4);
    sum_digits(lane, row, by_mass, prefix, known, shift);
    auto const total_of = [&](int digit) {
      return lane.template shared_load<std::uint64_t>(params::totals_at + digit * 8);
    };
    if (level == 0) {
      std::uint64_t total = 0;
      for (int d = 0; d < params::digits; ++d) total += total_of(d);
      point = point_of(total);
      if (point >= total) return qpn::detail::no_candidate;
    }
    int digit = params::digits - 1;
    for (; digit > 0 && point >= before + total_of(digit); --digit) before += total_of(digit);
    prefix |= static_cast<std::uint64_t>(digit) << shift;
  }
  return prefix;
}

/// Penalties of row r: of what its sequence has seen, and of the drafts before it.
template <class Lane>
QPN_HD void penalise_row(Lane& lane, choose_params const& p, std::int64_t r,
                         token_penalties const& by) {
  using params = choose_params;
  span_entry const span = lane.load(p.spans + lane.load(p.row_spans + r));
  float* const logits = p.logits + r * p.stride;
  auto const count = static_cast<int>(r - span.first_row);
  std::int32_t drafts[params::most_drafts];
  QPN_UNROLL
  for (int i = 0; i < params::most_drafts; ++i) {
    drafts[i] = -1;
    if (i >= count) continue;
    std::int32_t const id = lane.load(p.ids + span.first_row + 1 + i);
    drafts[i] = id >= 0 ? id : lane.load(&p.tokens[-1 - id].id);
  }
  auto const penalise = [&](std::int32_t id, std::int32_t times) {
    if (id < 0 || id >= p.valid) return;
    lane.store(logits + id, penalised_logit(lane.load(logits + id), by, times));
  };
  // Word i: whether draft i is among the ids seen.
  if (lane.thread() < params::most_drafts) lane.shared_store(lane.thread() * 4, 0);
  lane.sync_block();
  for (std::int32_t e = lane.thread(); e < span.seen; e += params::threads) {
    token_count one = lane.load(p.seen + span.first_seen + e);
    QPN_UNROLL
    for (int i = 0; i < params::most_drafts; ++i) {
      if (drafts[i] != one.id) continue;
      ++one.count;
      lane.shared_store(i * 4, 1);
    }
    penalise(one.id, one.count);
  }
  lane.sync_block();
  std::int32_t times = 0;
  bool is_first = true;
  std::int32_t own = -1;
  QPN_UNROLL
  for (int i = 0; i < params::most_drafts; ++i) own = i == lane.thread() ? drafts[i] : own;
  QPN_UNROLL
  for (int i = 0; i < params::most_drafts; ++i) {
    if (own < 0 || drafts[i] != own) continue;
    ++times;
    is_first = is_first && i >= lane.thread();
  }
  if (times > 0 && is_first && lane.template shared_load<int>(lane.thread() * 4) == 0) {
    penalise(own, times);
  }
  lane.sync_block();
}

template <class Lane>
QPN_HD void run_program(Lane& lane, choose_params const& p) {
  std::int64_t const r = lane.block();
  row_choice const choice = lane.load(p.choices + r);
  if (choice.how.penalties.any()) penalise_row(lane, p, r, choice.how.penalties);
  choose_row row;
  row.logits = p.logits + r * p.stride;
  row.valid = p.valid;
  row.how = choice.how;
  std::uint64_t key = largest_key(lane, row.logits, row.valid);
  row.top = qpn::detail::candidate_value(key);
  bool const is_finite = row.top - row.top == 0.0F;
  if (!choice.how.is_greedy() && is_finite) {
    if (choice.how.top_k > 0) {
      auto const last = static_cast<std::uint64_t>(choice.how.top_k) - 1;
      row.lowest = find_weight(lane, row, false, [&](std::uint64_t) { return last; });
    }
    if (choice.how.top_p < 1) {
      row.lowest = find_weight(lane, row, true, [&](std::uint64_t total) {
        return wanted_mass(choice.how.top_p, total) - 1;
      });
    }
    key = find_weight(lane, row, true, [&](std::uint64_t total) {
      return scale_bits(random_bits(choice.how.seed, choice.position, random_purpose::next_token),
                        total);
    });
  }
  if (lane.thread() != 0) return;
  lane.store(p.chosen + r,
             ranked_id{qpn::detail::candidate_value(key), qpn::detail::candidate_id(key)});
}

}  // namespace qwen38::ops::cuda

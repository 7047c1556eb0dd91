// SPDX-License-Identifier: Apache-2.0
#include "gemm_tune/candidates.hpp"

#include <algorithm>
#include <qpn/gemm_types.hpp>

namespace qpn::bench::tune {

namespace {

constexpr std::int64_t most_row_blocks = 8;

/// Whether the library takes a choice for m rows.
template <class Format>
bool is_taken(packed_layout const& layout, std::int64_t m, device_info const& device,
              gemm_choice choice) {
  gemm_tuning_row const row{layout.format, layout.n, layout.k, m, m, choice};
  gemm_problem problem;
  problem.max_m = m;
  problem.tuning = {&row, 1};
  gemm_plan<Format> plan;
  return make_gemm_plan(layout, problem, device, plan).ok() && choice_of(plan, m) == choice;
}

std::vector<gemm_choice> all_choices(packed_layout const& layout, std::int64_t m,
                                     device_info const& device) {
  std::vector<gemm_choice> all;
  for (gemm_method const method : {gemm_method::mt1, gemm_method::mt2, gemm_method::mt4}) {
    int const row_tiles = detail::mma16_row_tiles(method);
    std::int64_t const blocks = detail::row_blocks(m, row_tiles);
    if (blocks > most_row_blocks) continue;
    all.push_back({method});
    detail::sm80::register_choices const free =
        detail::sm80::free_registers(layout.format, row_tiles);
    std::int64_t const strips = layout.padded_n / tile_n;
    bool const halves =
        detail::sm80::prefers_halves(layout.format, row_tiles, strips, blocks, device.sm_count);
    int const by_ctas =
        detail::sm80::choose_registers(free, strips * blocks, layout.ctas, device.sm_count);
    for (int i = 0; i < free.count; ++i) {
      if (free.values[i] == by_ctas && !halves) continue;  // the same kernel
      all.push_back({method, 0, 0, 0, 0, static_cast<std::int16_t>(free.values[i])});
    }
  }
  for (std::int16_t rows = 32; rows <= 96; rows += 32) {
    for (std::int8_t groups = 1; groups <= 3; ++groups) {
      all.push_back({gemm_method::group, rows, groups});
    }
  }
  for (std::int16_t rows = 128; rows >= 96; rows -= 32) {
    for (std::int8_t ranks = 1; ranks <= 4; ++ranks) {
      all.push_back({gemm_method::wide, rows, 0, ranks});
      for (auto tail = static_cast<std::int8_t>(ranks + 1); tail <= 4; ++tail) {
        bool const has_tail =
            detail::sm90::wide_shape_of(layout, m, device.sm_count, rows, ranks, tail).tail_tiles !=
            0;
        if (has_tail) all.push_back({gemm_method::wide, rows, 0, ranks, tail});
      }
    }
  }
  return all;
}

}  // namespace

gemm_choice rule_of(packed_layout const& layout, std::int64_t m, device_info const& device) {
  return visit_format<gemm_choice>(layout.format, {}, [&](auto format) {
    return detail::rule_choice<decltype(format)>(
        layout, detail::sm90::has_wide(layout, device.compute_capability), false, device.sm_count,
        m);
  });
}

std::vector<gemm_choice> candidates_of(packed_layout const& layout, std::int64_t m,
                                       device_info const& device) {
  gemm_choice const rule = rule_of(layout, m, device);
  std::vector<gemm_choice> found = {rule};
  for (gemm_choice const choice : all_choices(layout, m, device)) {
    bool const taken = visit_format<bool>(layout.format, false, [&](auto format) {
      return is_taken<decltype(format)>(layout, m, device, choice);
    });
    if (taken && choice != rule) found.push_back(choice);
  }
  return found;
}

bool adds_alike(gemm_choice a, gemm_choice b) {
  bool const wide = a.method == gemm_method::wide;
  if (wide != (b.method == gemm_method::wide)) return false;
  return !wide || (a.ranks == b.ranks && a.tail_ranks == b.tail_ranks &&
                   (a.tail_ranks == 0 || a.rows == b.rows));
}

std::int64_t first_m_of(std::vector<std::int64_t> const& all, std::int64_t m) {
  auto const at = std::lower_bound(all.begin(), all.end(), m);
  std::int64_t const behind = at == all.begin() ? 1 : *(at - 1) + 1;
  if (m <= gemm_max_m) return behind;
  std::int64_t first = std::max(behind, gemm_max_m + 1);
  for (std::int64_t const tile : {32, 96, 128}) {
    first = std::max(first, (m - 1) / tile * tile + 1);
  }
  return first;
}

std::string text_of(gemm_choice choice) {
  std::string text = detail::gemm_method_names[static_cast<int>(choice.method)];
  if (choice.registers != 0) text += " r" + std::to_string(choice.registers);
  if (choice.rows == 0) return text;
  int const shared = choice.method == gemm_method::group ? choice.groups : choice.ranks;
  text += ' ';
  text += std::to_string(choice.rows);
  text += '/';
  text += std::to_string(shared);
  if (choice.tail_ranks == 0) return text;
  text += '+';
  return text += std::to_string(choice.tail_ranks);
}

}  // namespace qpn::bench::tune

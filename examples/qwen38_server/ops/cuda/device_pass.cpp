// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/device_pass.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

template <class T>
T const* place(std::byte const* base, std::size_t at) {
  return reinterpret_cast<T const*>(base + at);
}

}  // namespace

device_pass::device_pass(device& owner, pass_limits const& limits)
    : owner_(owner), limits_(limits) {
  std::size_t bytes = 0;
  auto const take = [&bytes](std::int64_t count, std::size_t element) {
    std::size_t const at = bytes;
    bytes += (static_cast<std::size_t>(count) * element + 255) / 256 * 256;
    return at;
  };
  std::size_t const spans_at = take(limits.spans, sizeof(span_entry));
  std::size_t const ids_at = take(limits.rows, sizeof(std::int32_t));
  std::size_t const row_spans_at = take(limits.rows, sizeof(std::int32_t));
  std::array<std::size_t, row_move_lists> moves_at = {};
  for (std::size_t& at : moves_at) at = take(limits.moves, sizeof(row_move));
  pages_at_ = take(limits.spans * limits.pages, sizeof(std::int32_t));  // last: seldom all are used
  memory_ = device_block(owner, bytes, "the description of a pass");
  staged_.resize(bytes);
  std::byte const* const base = memory_.as();
  view_.spans = place<span_entry>(base, spans_at);
  view_.ids = place<std::int32_t>(base, ids_at);
  view_.row_spans = place<std::int32_t>(base, row_spans_at);
  view_.pages = place<std::int32_t>(base, pages_at_);
  for (std::size_t i = 0; i < moves_at.size(); ++i) {
    view_.moves[i] = place<row_move>(base, moves_at[i]);
  }
}

void device_pass::set(pass_rows const& rows) {
  auto const require = [](bool fits) {
    if (fits) return;
    throw error(error_kind::internal, "pass: more rows, spans, pages or moves than its limits");
  };
  auto const staged = [&](void const* in_device) {
    return staged_.data() + (static_cast<std::byte const*>(in_device) - memory_.as());
  };
  spans_.clear();
  needs_.clear();
  rows_ = 0;
  longest_span_ = 0;
  last_slot_ = 0;
  std::int64_t page_count = 0;
  require(std::ssize(rows.spans) <= limits_.spans);
  for (row_span const& span : rows.spans) {
    require(span.first_row == rows_ && rows_ + span.rows <= limits_.rows);
    page_need need;
    need.slots = span.position + span.rows + rows.slot_offset;
    need.given = std::ssize(span.pages);
    auto const used = span.pages.first(static_cast<std::size_t>(
        std::min(need.given, (need.slots + kv_page_tokens - 1) / kv_page_tokens)));
    require(std::ssize(used) <= limits_.pages);
    if (!used.empty()) {
      auto const [lowest, highest] = std::ranges::minmax(used);
      need.lowest = lowest;
      need.highest = highest;
      std::memcpy(staged(view_.pages) + static_cast<std::size_t>(page_count) * sizeof(std::int32_t),
                  used.data(), used.size_bytes());
    }
    std::vector<std::int32_t> const indices(static_cast<std::size_t>(span.rows),
                                            static_cast<std::int32_t>(spans_.size()));
    if (!indices.empty()) {
      std::memcpy(staged(view_.row_spans + rows_), indices.data(),
                  indices.size() * sizeof(std::int32_t));
    }
    spans_.push_back({span.lane, static_cast<std::int32_t>(span.first_row),
                      static_cast<std::int32_t>(span.rows), span.tentative ? 1 : 0, span.position,
                      page_count});
    needs_.push_back(need);
    rows_ += span.rows;
    page_count += std::ssize(used);
    longest_span_ = std::max(longest_span_, span.rows);
    last_slot_ = std::max(last_slot_, need.slots - 1);
  }
  id_count_ = std::ssize(rows.ids);
  require(id_count_ <= limits_.rows);
  std::memcpy(staged(view_.spans), spans_.data(), spans_.size() * sizeof(span_entry));
  if (id_count_ > 0) std::memcpy(staged(view_.ids), rows.ids.data(), rows.ids.size_bytes());
  for (std::size_t i = 0; i < rows.moves.size(); ++i) {
    move_counts_[i] = std::ssize(rows.moves[i]);
    require(move_counts_[i] <= limits_.moves);
    if (rows.moves[i].empty()) continue;
    std::memcpy(staged(view_.moves[i]), rows.moves[i].data(), rows.moves[i].size_bytes());
  }
  view_.span_count = static_cast<std::int32_t>(spans_.size());
  view_.slot_offset = static_cast<std::int32_t>(rows.slot_offset);
  owner_.upload(memory_.as(), staged_.data(),
                pages_at_ + static_cast<std::size_t>(page_count) * sizeof(std::int32_t));
}

void device_pass::require_pages(std::int64_t pages) const {
  for (std::size_t i = 0; i < needs_.size(); ++i) {
    page_need const& need = needs_[i];
    if (need.slots <= need.given * kv_page_tokens && need.lowest >= 0 && need.highest < pages) {
      continue;
    }
    throw error(error_kind::internal,
                "KV cache: lane " + std::to_string(spans_[i].lane) + " needs " +
                    std::to_string(need.slots) + " slots, but its " + std::to_string(need.given) +
                    " pages of " + std::to_string(kv_page_tokens) + " in a pool of " +
                    std::to_string(pages) + " do not hold them");
  }
}

}  // namespace qwen38::ops::cuda

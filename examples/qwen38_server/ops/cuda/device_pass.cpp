// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/device_pass.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/tensor_limits.hpp"
#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

void require(bool fits) {
  if (fits) return;
  throw error(error_kind::internal, "pass: more rows, spans, pages, moves or ids than its limits");
}

std::int64_t pages_of(std::int64_t slots) {
  return (slots + kv_page_tokens - 1) / kv_page_tokens;
}

}  // namespace

pass_block::pass_block(device& owner, std::span<pass_limits const> limits) : owner_(owner) {
  struct offsets {
    std::size_t spans, ids, row_spans, choices;
    std::array<std::size_t, row_move_lists> moves;
  };
  std::size_t bytes = 0;
  auto const take = [&bytes](std::int64_t count, std::size_t element) {
    std::size_t const at = bytes;
    bytes += (static_cast<std::size_t>(count) * element + 255) / 256 * 256;
    return at;
  };
  std::vector<offsets> places;
  for (pass_limits const& one : limits) {
    offsets at{};
    at.spans = take(one.spans + 1, sizeof(span_entry));  // one for the rows that fill up
    at.ids = take(one.rows, sizeof(std::int32_t));
    at.row_spans = take(one.rows, sizeof(std::int32_t));
    at.choices = take(one.choices, sizeof(row_choice));
    for (std::size_t& list : at.moves) list = take(one.moves, sizeof(row_move));
    places.push_back(at);
    most_pages_ = std::max(most_pages_, one.spans * one.pages);
    most_seen_ += one.seen;
  }
  pages_at_ = take(most_pages_ + std::ssize(added_pages_), sizeof(std::int32_t));
  seen_at_ = take(most_seen_, sizeof(token_count));
  memory_ = device_block(owner, bytes, "the description of a pass");
  staged_.resize(bytes);
  std::byte const* const base = memory_.as();
  auto const place = [base]<class T>(T const*& pointer, std::size_t at) {
    pointer = reinterpret_cast<T const*>(base + at);
  };
  for (offsets const& at : places) {
    pass_view& view = views_.emplace_back();
    place(view.spans, at.spans);
    place(view.ids, at.ids);
    place(view.row_spans, at.row_spans);
    place(view.choices, at.choices);
    place(view.pages, pages_at_);  // behind what is copied whole: seldom all are used
    place(view.seen, seen_at_);
    for (std::size_t i = 0; i < at.moves.size(); ++i) place(view.moves[i], at.moves[i]);
  }
}

std::vector<std::unique_ptr<pass>> pass_block::make_passes(device& owner,
                                                           std::span<pass_limits const> limits) {
  auto const block = std::make_shared<pass_block>(owner, limits);
  std::vector<std::unique_ptr<pass>> made;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    made.push_back(std::make_unique<device_pass>(block, limits[i], block->views_[i]));
  }
  return made;
}

pass_block::page_table& pass_block::table_of(std::int32_t const* pages) {
  auto const found = std::ranges::find(tables_, pages, &page_table::pages);
  return found != tables_.end() ? *found : tables_.emplace_back(page_table{pages});
}

void pass_block::write(void const* in_device, void const* from, std::size_t bytes) {
  if (bytes == 0) return;
  auto const at = static_cast<std::byte const*>(in_device) - memory_.as();
  std::memcpy(staged_.data() + at, from, bytes);
}

void pass_block::set(std::span<pass_setting const> settings) {
  tables_.clear();
  seen_ = 0;
  for (pass_setting const& one : settings) {
    pass_rows const& rows = one.rows;
    pass_limits const& limits = cuda::as_device(*one.into).limits();
    require(cuda::as_device(*one.into).block_.get() == this);
    for (row_span const& span : rows.spans) {
      std::int64_t const slots = span.position + span.rows + rows.slot_offset;
      std::int64_t const used = std::min(std::ssize(span.pages), pages_of(slots));
      require(used <= limits.pages);
      page_table& table = table_of(span.pages.data());
      table.used = std::max(table.used, used);
    }
    if (!rows.size) continue;
    added_pages_.fill(rows.size->page);
    table_of(added_pages_.data()).used = std::ssize(added_pages_);
  }
  std::int64_t pages = 0;
  for (page_table& table : tables_) {
    table.first = pages;
    pages += table.used;
    require(pages <= most_pages_ + std::ssize(added_pages_));
    write(views_.front().pages + table.first, table.pages,
          static_cast<std::size_t>(table.used) * sizeof(std::int32_t));
  }
  for (pass_setting const& one : settings) static_cast<device_pass&>(*one.into).set(one.rows);
  owner_.upload(memory_.as(), staged_.data(),
                pages_at_ + static_cast<std::size_t>(pages) * sizeof(std::int32_t));
  if (seen_ == 0) return;
  owner_.upload(memory_.as() + seen_at_, staged_.data() + seen_at_,
                static_cast<std::size_t>(seen_) * sizeof(token_count));
}

void device_pass::set(pass_rows const& rows) {
  spans_.clear();
  needs_.clear();
  row_spans_.clear();
  longest_span_ = 0;
  last_slot_ = 0;
  require(std::ssize(rows.spans) <= limits_.spans);
  for (row_span const& span : rows.spans) {
    require(span.first_row == std::ssize(row_spans_) && span.first_row + span.rows <= limits_.rows);
    page_need need;
    need.slots = span.position + span.rows + rows.slot_offset;
    need.given = std::ssize(span.pages);
    auto const used =
        span.pages.first(static_cast<std::size_t>(std::min(need.given, pages_of(need.slots))));
    if (!used.empty()) {
      auto const [lowest, highest] = std::ranges::minmax(used);
      need.lowest = lowest;
      need.highest = highest;
    }
    row_spans_.insert(row_spans_.end(), static_cast<std::size_t>(span.rows),
                      static_cast<std::int32_t>(spans_.size()));
    spans_.push_back(
        {span.lane, static_cast<std::int32_t>(span.first_row), static_cast<std::int32_t>(span.rows),
         span.tentative ? 1 : 0, span.position, block_->table_of(span.pages.data()).first,
         static_cast<std::int32_t>(block_->seen_), static_cast<std::int32_t>(span.seen.size())});
    require(block_->seen_ + std::ssize(span.seen) <= block_->most_seen_);
    block_->write(view_.seen + block_->seen_, span.seen.data(), span.seen.size_bytes());
    block_->seen_ += std::ssize(span.seen);
    needs_.push_back(need);
    longest_span_ = std::max(longest_span_, span.rows);
    last_slot_ = std::max(last_slot_, need.slots - 1);
  }
  view_.span_count = static_cast<std::int32_t>(spans_.size());
  view_.slot_offset = static_cast<std::int32_t>(rows.slot_offset);
  if (rows.size) fill_up(*rows.size, rows.slot_offset);
  rows_ = std::ssize(row_spans_);
  id_count_ = std::ssize(rows.ids);
  require(id_count_ <= limits_.rows);
  block_->write(view_.spans, spans_.data(), spans_.size() * sizeof(span_entry));
  block_->write(view_.row_spans, row_spans_.data(), row_spans_.size() * sizeof(std::int32_t));
  choice_count_ = std::ssize(rows.choices);
  require(choice_count_ <= limits_.choices);
  block_->write(view_.choices, rows.choices.data(), rows.choices.size_bytes());
  block_->write(view_.ids, rows.ids.data(), rows.ids.size_bytes());
  for (std::size_t i = 0; i < rows.moves.size(); ++i) {
    move_counts_[i] = std::ssize(rows.moves[i]);
    require(move_counts_[i] <= limits_.moves);
    block_->write(view_.moves[i], rows.moves[i].data(), rows.moves[i].size_bytes());
  }
}

/// Spans without rows, and behind the last of them one that no launch counts and all rows added are
/// of: from position 0 of no lane's pages, final and in lane 0, of which they only read.
void device_pass::fill_up(pass_size const& size, std::int64_t slot_offset) {
  std::int64_t const first = std::ssize(row_spans_);
  bool const fits = first <= size.rows && std::ssize(spans_) <= size.spans &&
                    longest_span_ <= size.longest_span && last_slot_ < size.slots;
  std::int64_t const added_slots = std::ssize(block_->added_pages_) * kv_page_tokens;
  require(fits && size.rows <= limits_.rows && size.spans <= limits_.spans &&
          size.rows + slot_offset <= added_slots);
  spans_.resize(static_cast<std::size_t>(size.spans), {0, 0, 0, /*tentative=*/1, 0, 0, 0, 0});
  row_spans_.resize(static_cast<std::size_t>(size.rows), static_cast<std::int32_t>(size.spans));
  spans_.push_back({0, static_cast<std::int32_t>(first),
                    static_cast<std::int32_t>(size.rows - first), 0, 0,
                    block_->table_of(block_->added_pages_.data()).first, 0, 0});
  view_.span_count = static_cast<std::int32_t>(size.spans);
  longest_span_ = size.longest_span;
  last_slot_ = size.slots - 1;
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/memory.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/pass.hpp"

namespace qwen38::ops::cuda {

class pass_block;

/// A pass in device memory, at addresses that stay, so that a captured graph can be replayed with
/// other rows. Where it is filled up, what launches depend on are the sizes that it is filled up
/// to.
class device_pass final : public pass {
 public:
  device_pass(std::shared_ptr<pass_block> block, pass_limits const& limits, pass_view const& view)
      : block_(std::move(block)), limits_(limits), view_(view) {}

  [[nodiscard]] pass_block& block() const noexcept { return *block_; }
  [[nodiscard]] pass_limits const& limits() const noexcept { return limits_; }
  [[nodiscard]] pass_view const& view() const noexcept { return view_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t id_count() const noexcept { return id_count_; }
  [[nodiscard]] std::int64_t move_count(int list) const {
    return move_counts_[static_cast<std::size_t>(list)];
  }
  [[nodiscard]] std::int64_t choice_count() const noexcept { return choice_count_; }
  /// Those of the caller.
  [[nodiscard]] std::span<span_entry const> spans() const noexcept {
    return std::span(spans_).first(needs_.size());
  }
  [[nodiscard]] std::int64_t longest_span() const noexcept { return longest_span_; }
  /// The last slot that any row sees.
  [[nodiscard]] std::int64_t last_slot() const noexcept { return last_slot_; }

  /// Refuses spans whose slots no page of a pool of `pages` holds.
  void require_pages(std::int64_t pages) const;

 private:
  friend class pass_block;

  struct page_need {
    std::int64_t slots = 0;
    std::int64_t given = 0;   ///< pages
    std::int64_t lowest = 0;  ///< of the pages that are needed
    std::int64_t highest = 0;
  };

  void set(pass_rows const& rows);
  void fill_up(pass_size const& size, std::int64_t slot_offset);

  std::shared_ptr<pass_block> block_;
  pass_limits limits_;
  pass_view view_;
  std::vector<span_entry> spans_;
  std::vector<page_need> needs_;
  std::vector<std::int32_t> row_spans_;
  std::int64_t rows_ = 0;
  std::int64_t id_count_ = 0;
  std::int64_t choice_count_ = 0;
  std::array<std::int64_t, row_move_lists> move_counts_ = {};
  std::int64_t longest_span_ = 0;
  std::int64_t last_slot_ = 0;
};

/// Passes that lie side by side in device memory: one copy sets several of them, and one more the
/// ids that their spans have seen.
class pass_block {
 public:
  pass_block(device& owner, std::span<pass_limits const> limits);
  [[nodiscard]] static std::vector<std::unique_ptr<pass>> make_passes(
      device& owner, std::span<pass_limits const> limits);

  void set(std::span<pass_setting const> settings);

 private:
  friend class device_pass;

  /// A list of pages, which the spans of several passes share.
  struct page_table {
    std::int32_t const* pages = nullptr;
    std::int64_t used = 0;
    std::int64_t first = 0;  ///< where it lies
  };

  page_table& table_of(std::int32_t const* pages);
  void write(void const* in_device, void const* from, std::size_t bytes);

  device& owner_;
  device_block memory_;
  std::vector<std::byte> staged_;
  std::vector<pass_view> views_;
  std::size_t pages_at_ = 0;
  std::size_t seen_at_ = 0;
  std::int64_t most_seen_ = 0;
  std::int64_t seen_ = 0;  ///< of the spans that are set
  std::int64_t most_pages_ = 0;
  std::vector<page_table> tables_;
  /// Of the rows that fill up, all of whose slots lie in one page.
  std::array<std::int32_t, 2> added_pages_ = {};
};

[[nodiscard]] inline device_pass const& as_device(pass const& p) {
  return static_cast<device_pass const&>(p);
}

}  // namespace qwen38::ops::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/memory.hpp"
#include "ops/cuda/pass_view.hpp"
#include "ops/pass.hpp"

namespace qwen38::ops::cuda {

/// A pass in device memory. set() is one copy; addresses stay, so that a captured graph can be
/// replayed with other rows.
class device_pass final : public pass {
 public:
  device_pass(device& owner, pass_limits const& limits);

  void set(pass_rows const& rows);

  [[nodiscard]] pass_limits const& limits() const noexcept { return limits_; }
  [[nodiscard]] pass_view const& view() const noexcept { return view_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t id_count() const noexcept { return id_count_; }
  [[nodiscard]] std::int64_t move_count(int list) const {
    return move_counts_[static_cast<std::size_t>(list)];
  }
  [[nodiscard]] std::vector<span_entry> const& spans() const noexcept { return spans_; }
  [[nodiscard]] std::int64_t longest_span() const noexcept { return longest_span_; }
  /// The last slot that any row sees.
  [[nodiscard]] std::int64_t last_slot() const noexcept { return last_slot_; }

  /// Refuses spans whose slots no page of a pool of `pages` holds.
  void require_pages(std::int64_t pages) const;

 private:
  struct page_need {
    std::int64_t slots = 0;
    std::int64_t given = 0;   ///< pages
    std::int64_t lowest = 0;  ///< of the pages that are needed
    std::int64_t highest = 0;
  };

  device& owner_;
  pass_limits limits_;
  device_block memory_;
  std::vector<std::byte> staged_;
  pass_view view_;
  std::size_t pages_at_ = 0;
  std::vector<span_entry> spans_;
  std::vector<page_need> needs_;
  std::int64_t rows_ = 0;
  std::int64_t id_count_ = 0;
  std::array<std::int64_t, row_move_lists> move_counts_ = {};
  std::int64_t longest_span_ = 0;
  std::int64_t last_slot_ = 0;
};

[[nodiscard]] inline device_pass const& as_device(pass const& p) {
  return static_cast<device_pass const&>(p);
}

}  // namespace qwen38::ops::cuda

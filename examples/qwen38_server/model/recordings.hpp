// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ops/backend.hpp"

namespace qwen38::model {

/// What a recorded round was recorded for.
struct round_bucket {
  std::int64_t lanes = 0;
  std::int64_t drafts = 0;
  std::int64_t settled = 0;  ///< rows of the MTP layer, of each lane
  std::int64_t slots = 0;
  bool logits = false;
  bool operator==(round_bucket const&) const = default;
};

/// Rounds that a backend keeps, by bucket: a bucket's first round is done operation by operation,
/// which also takes all memory that it needs; its second is recorded, and that and all later ones
/// are replays. The bucket that was not wanted for longest makes room for a new one.
class recordings {
 public:
  static constexpr std::size_t most = 64;

  void run(ops::backend& backend, round_bucket const& bucket, std::function<void()> const& work) {
    entry& one = entry_of(bucket);
    one.latest = ++turn_;
    if (one.recorded == nullptr && !one.was_run) {
      work();
      one.was_run = true;
      return;
    }
    if (one.recorded == nullptr) one.recorded = backend.record(work);
    backend.replay(*one.recorded);
  }

 private:
  struct entry {
    round_bucket bucket;
    std::uint64_t latest = 0;
    bool was_run = false;
    std::unique_ptr<ops::recording> recorded;
  };

  entry& entry_of(round_bucket const& bucket) {
    auto const found = std::ranges::find(entries_, bucket, &entry::bucket);
    if (found != entries_.end()) return *found;
    if (entries_.size() == most)
      entries_.erase(std::ranges::min_element(entries_, {}, &entry::latest));
    entries_.emplace_back().bucket = bucket;
    return entries_.back();
  }

  std::vector<entry> entries_;
  std::uint64_t turn_ = 0;
};

}  // namespace qwen38::model

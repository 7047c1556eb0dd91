// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "support/emulator/moment.hpp"

namespace qpn::test {

/// A plain store, as far as other CTAs are concerned.
struct remote_store {
  int block = 0;
  int thread = 0;
  std::uint32_t fences = 0;  ///< That the thread had passed before the store.
  friend bool operator==(remote_store const&, remote_store const&) = default;
};

/// What puts a store of one CTA before an access of another, whatever the schedule: the storing
/// thread passes a fence, then (a barrier and) an atomic of its CTA; an atomic on the same word
/// comes later; (a barrier and) the access follow it. Knowledge is handed on: who takes part in the
/// atomics of one word brings what it learned to the next word.
class block_order {
 public:
  block_order(int blocks, int threads);

  void fence(lane_moment const& at);

  /// An atomic on the word at `address`: learns what earlier ones brought, and brings its own.
  void atomic(lane_moment const& at, std::uintptr_t address);

  [[nodiscard]] std::uint32_t fences(lane_moment const& at) const {
    return static_cast<std::uint32_t>(fence_times_[lane(at.block, at.thread)].size());
  }

  /// The storing thread has passed a fence since.
  [[nodiscard]] bool fenced(remote_store const& store) const {
    return fence_times_[lane(store.block, store.thread)].size() > store.fences;
  }

  /// The store comes before what happens at `at`, in another CTA, in every schedule.
  [[nodiscard]] bool is_before(remote_store const& store, lane_moment const& at) const;

 private:
  /// An atomic, as a way out of its CTA.
  struct way_out {
    std::size_t position;  ///< In the history of its word.
    lane_moment at;
    std::uint32_t fences;
  };
  /// A part of the history of a word, from its start.
  struct known_history {
    std::size_t word = 0;
    std::size_t length = 0;
  };
  struct brought_history {
    std::size_t position;
    known_history history;
  };
  struct word_history {
    std::size_t length = 0;
    std::unordered_map<int, std::vector<way_out>> by_block;
    std::vector<brought_history> brought;
  };
  /// What a thread learned by an atomic.
  struct way_in {
    int thread;
    std::uint32_t time;
    known_history history;
  };

  [[nodiscard]] std::size_t lane(int block, int thread) const {
    return static_cast<std::size_t>(block) * threads_ + static_cast<std::size_t>(thread);
  }
  [[nodiscard]] bool leaves_by(way_out const& way, remote_store const& store) const;
  [[nodiscard]] bool holds(known_history const& history, remote_store const& store,
                           std::vector<std::size_t>& searched) const;

  std::size_t threads_;
  std::vector<std::vector<std::uint32_t>> fence_times_;  // by lane of the grid
  std::vector<std::vector<way_in>> ways_in_;             // by CTA
  std::unordered_map<std::uintptr_t, std::size_t> word_at_;
  std::vector<word_history> words_;
};

}  // namespace qpn::test

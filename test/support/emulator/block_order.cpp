// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/block_order.hpp"

#include <algorithm>

namespace qpn::test {

block_order::block_order(int blocks, int threads)
    : threads_(static_cast<std::size_t>(threads)),
      fence_times_(static_cast<std::size_t>(blocks) * threads_),
      ways_in_(static_cast<std::size_t>(blocks)) {}

void block_order::fence(lane_moment const& at) {
  fence_times_[lane(at.block, at.thread)].push_back(at.now);
}

void block_order::atomic(lane_moment const& at, std::uintptr_t address) {
  std::size_t const word = word_at_.try_emplace(address, words_.size()).first->second;
  if (word == words_.size()) words_.emplace_back();
  word_history& history = words_[word];
  std::vector<way_in>& ways_in = ways_in_[static_cast<std::size_t>(at.block)];

  for (way_in const& way : ways_in) {
    if (way.history.word == word || !at.is_after(way.thread, way.time)) continue;
    bool const known = std::any_of(history.brought.begin(), history.brought.end(),
                                   [&](brought_history const& other) {
                                     return other.history.word == way.history.word &&
                                            other.history.length >= way.history.length;
                                   });
    if (!known) history.brought.push_back({history.length, way.history});
  }
  if (history.length > 0) ways_in.push_back({at.thread, at.now, {word, history.length}});
  history.by_block[at.block].push_back({history.length, at, fences(at)});
  ++history.length;
}

bool block_order::is_before(remote_store const& store, lane_moment const& at) const {
  std::vector<std::size_t> searched(words_.size());
  std::vector<way_in> const& ways_in = ways_in_[static_cast<std::size_t>(at.block)];
  return std::any_of(ways_in.begin(), ways_in.end(), [&](way_in const& way) {
    return at.is_after(way.thread, way.time) && holds(way.history, store, searched);
  });
}

bool block_order::leaves_by(way_out const& way, remote_store const& store) const {
  if (way.at.thread == store.thread) return store.fences < way.fences;
  std::vector<std::uint32_t> const& fence_times = fence_times_[lane(store.block, store.thread)];
  return store.fences < fence_times.size() &&
         way.at.is_after(store.thread, fence_times[store.fences]);
}

/// `searched`: for each word the length that is known not to hold the store.
bool block_order::holds(known_history const& history, remote_store const& store,
                        std::vector<std::size_t>& searched) const {
  if (searched[history.word] >= history.length) return false;
  searched[history.word] = history.length;
  word_history const& word = words_[history.word];
  auto const ways = word.by_block.find(store.block);
  if (ways != word.by_block.end()) {
    for (way_out const& way : ways->second) {
      if (way.position < history.length && leaves_by(way, store)) return true;
    }
  }
  return std::any_of(word.brought.begin(), word.brought.end(), [&](brought_history const& other) {
    return other.position < history.length && holds(other.history, store, searched);
  });
}

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.hpp"

#include <algorithm>
#include <functional>

namespace qwen38::text {
namespace {

constexpr std::uint32_t no_symbol = UINT32_MAX;
constexpr std::uint32_t no_rank = UINT32_MAX;

}  // namespace

bpe::bpe(std::array<std::int32_t, 256> const& byte_ids, std::span<merge const> merges)
    : byte_ids_(byte_ids) {
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (merge const& m : merges) merges_.emplace(key(m.left, m.right), ranked{rank++, m.product});
}

void bpe::rank_pair(std::uint32_t index, scratch& work) const {
  auto& symbol = work.symbols[index];
  symbol.rank = no_rank;
  if (symbol.next == no_symbol) return;
  auto const found = merges_.find(key(symbol.id, work.symbols[symbol.next].id));
  if (found == merges_.end()) return;
  symbol.rank = found->second.rank;
  work.heap.push_back(static_cast<std::uint64_t>(symbol.rank) << 32 | index);
  std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>{});
}

void bpe::encode(std::string_view word, scratch& work, std::vector<std::int32_t>& out) const {
  if (word.empty()) return;
  auto const count = static_cast<std::uint32_t>(word.size());
  auto& symbols = work.symbols;
  symbols.clear();
  work.heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.push_back({byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? no_symbol : i - 1,
                       i + 1 == count ? no_symbol : i + 1, no_rank});
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) rank_pair(i, work);

  while (!work.heap.empty()) {
    std::pop_heap(work.heap.begin(), work.heap.end(), std::greater<>{});
    auto const rank = static_cast<std::uint32_t>(work.heap.back() >> 32);
    auto const left = static_cast<std::uint32_t>(work.heap.back());
    work.heap.pop_back();
    // A pair that an earlier merge changed or removed has another rank by now.
    if (symbols[left].rank != rank) continue;
    std::uint32_t const right = symbols[left].next;
    symbols[left].id = merges_.find(key(symbols[left].id, symbols[right].id))->second.product;
    symbols[left].next = symbols[right].next;
    symbols[right].rank = no_rank;
    if (symbols[left].next != no_symbol) symbols[symbols[left].next].previous = left;
    rank_pair(left, work);
    if (symbols[left].previous != no_symbol) rank_pair(symbols[left].previous, work);
  }
  for (std::uint32_t i = 0; i != no_symbol; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace qwen38::text

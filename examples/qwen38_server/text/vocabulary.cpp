// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.hpp"

#include <algorithm>
#include <string_view>

namespace qwen38::text {

vocabulary::vocabulary(tokenizer const& source) : source_(&source) {
  for (std::int32_t id = 0; id < source.vocab_size(); ++id) {
    if (!source.token_bytes(id).empty() && !source.is_special(id)) ids_.push_back(id);
  }
  std::ranges::sort(ids_, [&](std::int32_t a, std::int32_t b) {
    auto const left = source.token_bytes(a);
    auto const right = source.token_bytes(b);
    return left != right ? left < right : a < b;
  });

  std::vector<std::size_t> path;  // the nodes of the token before
  auto const leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].behind = static_cast<std::int32_t>(nodes_.size());
  };
  std::string_view before;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    auto const bytes = source.token_bytes(ids_[i]);
    auto const most = static_cast<std::ptrdiff_t>(std::min(before.size(), bytes.size()));
    auto const parting = std::mismatch(bytes.begin(), bytes.begin() + most, before.begin()).first;
    leave(static_cast<std::size_t>(parting - bytes.begin()));
    while (path.size() < bytes.size()) {
      auto const depth = path.size();
      path.push_back(nodes_.size());
      nodes_.push_back({0, static_cast<std::int32_t>(i), static_cast<std::int32_t>(depth), 0, 0,
                        static_cast<unsigned char>(bytes[depth])});
    }
    auto const classes = classes_from(bytes);
    for (std::size_t depth = 0; depth < path.size(); ++depth) {
      node& through = nodes_[path[depth]];
      through.below |= classes[depth];
      through.longest = std::max(through.longest, static_cast<std::int32_t>(bytes.size() - depth));
    }
    longest_ = std::max(longest_, bytes.size());
    before = bytes;
  }
  leave(0);
  auto const end = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({end, static_cast<std::int32_t>(ids_.size()), 0, 0, 0, 0});
}

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.hpp"

#include <algorithm>

namespace qwen38::text {

vocabulary::vocabulary(tokenizer const& source) : source_(&source) {
  for (std::int32_t id = 0; id < source.vocab_size(); ++id) {
    auto const bytes = source.token_bytes(id);
    if (!bytes.empty() && !source.is_special(id)) tokens_.push_back({bytes, id, 0});
  }
  std::ranges::sort(tokens_, [](token const& a, token const& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (std::size_t i = 1; i < tokens_.size(); ++i) {
    auto const before = tokens_[i - 1].bytes;
    auto const here = tokens_[i].bytes;
    auto const most = std::min(before.size(), here.size());
    auto const end = std::mismatch(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(most),
                                   before.begin())
                         .first;
    tokens_[i].shared = static_cast<std::int32_t>(end - here.begin());
  }
}

}  // namespace qwen38::text

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qwen38::cli {

/// Sizes and draft depth for a kind of use. Flags of their own go before. The KV cache holds what
/// all lanes may hold.
struct serving_profile {
  std::string name;
  std::string what;  ///< it is for
  int lanes = 0;
  std::int64_t context = 0;  ///< or the model's limit, if that is smaller
  int draft_tokens = 0;
  std::int64_t prefix_cache_mib = 0;
};

/// general, long, extract.
[[nodiscard]] std::vector<serving_profile> const& serving_profiles();
/// @throws qwen38::error (invalid_argument) for another name
[[nodiscard]] serving_profile const& find_profile(std::string const& name);

}  // namespace qwen38::cli

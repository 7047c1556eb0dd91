// SPDX-License-Identifier: Apache-2.0
#include "cli/profile.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace qwen38::cli {

std::vector<serving_profile> const& serving_profiles() {
  static std::vector<serving_profile> const all = {
      {"general", "chat and agents of a few people", 4, 32768, 7, 2048},
      {"long", "one conversation over long documents", 1, 262144, 7, 1024},
      // Copied text is drafted well: 4 x 16 rows still fit one pass of 96.
      {"extract", "documents to JSON, one after the other", 4, 16384, 15, 1024},
  };
  return all;
}

serving_profile const& find_profile(std::string const& name) {
  auto const found = std::ranges::find(serving_profiles(), name, &serving_profile::name);
  if (found != serving_profiles().end()) return *found;
  throw error(error_kind::invalid_argument,
              "--profile " + name + ": expected general, long or extract");
}

}  // namespace qwen38::cli

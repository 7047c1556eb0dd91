// SPDX-License-Identifier: Apache-2.0
#include "http/auth.hpp"

#include <cstddef>

namespace qwen38::http {
namespace {

bool is_equal_in_constant_time(std::string_view given, std::string_view key) noexcept {
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<std::size_t>(static_cast<unsigned char>(given[i]) ^
                                           static_cast<unsigned char>(key[i % key.size()]));
  }
  return difference == 0;
}

}  // namespace

bool is_authorised(std::string_view authorization, std::string_view key) noexcept {
  if (key.empty()) return true;
  constexpr std::string_view scheme = "bearer ";
  if (authorization.size() < scheme.size()) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    char const c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != scheme[i]) return false;
  }
  authorization.remove_prefix(scheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return is_equal_in_constant_time(authorization, key);
}

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#include "http/options.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "support/error.hpp"

namespace qwen38::http {
namespace {

[[noreturn]] void refuse(std::string const& sentence) {
  throw error(error_kind::invalid_argument, sentence);
}

bool is_loopback(std::string const& address) {
  if (address == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24U) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  refuse("The address to listen on must be a numeric one or `localhost`, got `" + address + "`.");
}

}  // namespace

void check_bind(options const& wanted) {
  bool const printable = std::all_of(wanted.api_key.begin(), wanted.api_key.end(),
                                     [](char c) { return c > ' ' && c < '\x7f'; });
  if (!printable) refuse("The API key must be printable ASCII without blanks.");
  if (is_loopback(wanted.address)) return;
  if (!wanted.allow_remote) {
    refuse("Listening on " + wanted.address +
           " lets other machines in: that needs the consent flag, and an API key.");
  }
  if (wanted.api_key.empty() && !wanted.insecure) {
    refuse("Listening on " + wanted.address +
           " without an API key lets anybody in: set a key, or the flag that accepts this.");
  }
}

}  // namespace qwen38::http

// SPDX-License-Identifier: Apache-2.0
#include "support/text.hpp"

#include <cstdio>

namespace qpn::bench {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace qpn::bench

// SPDX-License-Identifier: Apache-2.0
#include <qpn/qpn.hpp>

float largest_e2m1();

int main() {
  static_assert(qpn::status{}.ok());
  // 6 is the largest e2m1 value; both units hold the same inline functions.
  return largest_e2m1() == 6.0F && qpn::decode_e2m1(0x7) == 6.0F ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
#include <qpn/qpn.hpp>

float largest_e2m1();
float largest_e2m1() {
  return qpn::decode_e2m1(0x7);
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/emulator/report.hpp"

namespace qpn::test {

/// The report has one error, and it reads `text`.
inline void expect_error(emulation_report const& report, std::string const& text) {
  EXPECT_EQ(report.error_count, 1) << report.text();
  EXPECT_EQ(report.errors.empty() ? "" : report.errors.front(), text);
}

/// The report has errors, and one of them contains `text`.
inline void expect_found(emulation_report const& report, std::string const& text) {
  bool const found =
      std::any_of(report.errors.begin(), report.errors.end(),
                  [&](std::string const& error) { return error.find(text) != std::string::npos; });
  EXPECT_TRUE(found) << "no error says \"" << text << "\": " << report.text();
}

}  // namespace qpn::test

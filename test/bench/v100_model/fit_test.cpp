// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <gtest/gtest.h>

namespace qpn::bench::v100 {
namespace {

TEST(fit, gives_the_committed_constants_again) {
  EXPECT_EQ(fit_constants(published_timings()), fitted);
}

TEST(fit, uses_m_1_and_8_alone) {
  int used = 0;
  for (published_timing const& timing : published_timings()) {
    if (!timing.in_fit) continue;
    ++used;
    EXPECT_TRUE(timing.m == 1 || timing.m == 8) << timing.what;
    EXPECT_FALSE(timing.shapes.size() == 1 && timing.shapes[0].k == 1536) << timing.what;
    EXPECT_FALSE(timing.shapes[0].n == 62080) << timing.what;
  }
  EXPECT_EQ(used, 6);
}

TEST(fit, no_neighbour_is_better) {
  double const error = log_error(published_timings(), true, fitted);
  for (double const launch : {-0.2, 0.2}) {
    EXPECT_GT(
        log_error(published_timings(), true, {fitted.launch_us + launch, fitted.interference}),
        error);
  }
  EXPECT_GT(log_error(published_timings(), true, {fitted.launch_us, 4}), error);
}

TEST(fit, held_out_timings_change_nothing) {
  std::vector<published_timing> timings(published_timings().begin(), published_timings().end());
  for (published_timing& timing : timings) {
    if (!timing.in_fit) timing.us *= 3;
  }
  EXPECT_EQ(log_error(timings, true, fitted), log_error(published_timings(), true, fitted));
  EXPECT_GT(log_error(timings, false, fitted), 1.0);
}

TEST(fit, timings_are_bytes_by_rates) {
  // 4096 x 5120 + 5120 x 1536 + 3584 x 5120 bytes at 718.6 GB/s.
  for (published_timing const& timing : published_timings()) {
    if (timing.kernel != predecessor_kernel::qpn8 || timing.m != 1) continue;
    EXPECT_NEAR(timing.us, 47185.92 / 718.6, 1e-9);
  }
}

}  // namespace
}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace qpn {

/// What layouts and plans ask of a GPU: a plain value, so that both can be made, compared and
/// tested with no GPU. It is filled from cudaDeviceGetAttribute, or by hand.
struct device_info {
  int compute_capability = 0;      ///< 10 * major + minor: 70 for a V100, 90 for an H200
  int sm_count = 0;                ///< multiprocessors
  int max_threads_per_sm = 0;      ///< threads that can be resident on one multiprocessor
  int shared_bytes_per_sm = 0;     ///< shared memory of one multiprocessor
  int shared_bytes_per_block = 0;  ///< shared memory that one block may ask for (opt-in limit)
  int l2_bytes = 0;                ///< size of the L2 cache
};

}  // namespace qpn

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <qpn/device_info.hpp>
#include <string>

#include "gpu/device_memory.hpp"
#include "support/nvml.hpp"
#include "support/run_context.hpp"

namespace qpn::bench {

/// The GPU that a benchmark runs on, device 0, and a stream on it. Throws std::runtime_error with
/// one sentence where there is none.
class machine {
 public:
  machine();

  [[nodiscard]] device_info const& info() const { return info_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  void wait() const { stream_.wait(); }

  /// Clocks at this moment, from NVML.
  [[nodiscard]] device_clocks clocks() const { return nvml_.clocks(); }

  /// Clocks are those of a GPU that has read memory for a while.
  [[nodiscard]] run_context context(std::string command) const;

 private:
  [[nodiscard]] std::string clocks_under_load() const;

  device_info info_;
  test::device_stream stream_;
  nvml nvml_;
};

}  // namespace qpn::bench

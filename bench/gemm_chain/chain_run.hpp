// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gemm_chain/chain.hpp"
#include "support/captured_graph.hpp"
#include "support/cold_weights.hpp"
#include "support/machine.hpp"
#include "support/planned_gemm.hpp"

namespace qpn::bench::chain {

/// Layers one after another with random weights, all different: as many as keep them cold. The
/// output of one is the input of the next.
class layer_chain {
 public:
  layer_chain(layer const& of, std::int64_t m, machine const& gpu);

  /// Layers that a replay runs: 200 launches at least, the last layer with the last weights.
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// @param overlap  launches may overlap the one before, where the library offers it
  [[nodiscard]] captured_graph capture(bool overlap) const;

  /// All outputs become NaN.
  void clear();
  /// Throws wrong_output where the outputs of the last layer are not what they should be.
  void check() const;
  /// What the last layer hands on.
  [[nodiscard]] std::vector<std::byte> last_output() const;

  [[nodiscard]] std::vector<std::string> routes() const;
  /// Bytes of a packed weight.
  [[nodiscard]] std::size_t packed_bytes(std::size_t projection) const;

 private:
  struct place {
    void const* x;
    void* y;
  };
  /// What a layer hands to the next takes turns between two places, so that the last layer's input
  /// is still there when its output is.
  [[nodiscard]] test::device_memory const& handed_on(std::int64_t layer_index) const;
  /// Where a projection of a layer reads and writes.
  [[nodiscard]] place place_of(std::int64_t layer_index, std::size_t projection) const;
  [[nodiscard]] std::int64_t ldx(std::size_t projection) const;

  layer layer_;
  std::int64_t m_;
  machine const* gpu_;
  std::array<std::unique_ptr<cold_weights>, 4> weights_;
  std::array<std::unique_ptr<planned_gemm>, 4> gemms_;
  std::int64_t length_;
  test::device_memory input_;
  test::device_memory residual_;
  std::array<std::unique_ptr<test::device_memory>, 4> outputs_;
  test::device_memory second_output_;
};

/// Measures one layer and number of rows. Throws wrong_output where an output is wrong.
[[nodiscard]] measured_chain measure(layer const& of, std::int64_t m, std::int64_t replays,
                                     machine const& gpu);

}  // namespace qpn::bench::chain

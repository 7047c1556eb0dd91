// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace qpn::test {

class cta;

/// The resident CTAs of a cluster, which are on the device together, and their barrier: it opens
/// when every thread of the cluster has arrived once more.
class cta_cluster {
 public:
  cta_cluster(int ctas, int threads) : ctas_(static_cast<std::size_t>(ctas)), threads_(threads) {}

  [[nodiscard]] int size() const { return static_cast<int>(ctas_.size()); }
  /// Null where the CTA has come to its end.
  [[nodiscard]] cta* at(int rank) const { return ctas_[static_cast<std::size_t>(rank)]; }
  void add(int rank, cta& member) { ctas_[static_cast<std::size_t>(rank)] = &member; }
  void remove(int rank) { ctas_[static_cast<std::size_t>(rank)] = nullptr; }

  /// How often the barrier has opened.
  [[nodiscard]] int openings() const { return openings_; }
  /// Whether it opens by this.
  [[nodiscard]] bool arrive() {
    if (++arrived_ < size() * threads_) return false;
    arrived_ = 0;
    ++openings_;
    return true;
  }

  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (cta* const member : ctas_) {
      if (member != nullptr) visit(*member);
    }
  }

 private:
  std::vector<cta*> ctas_;
  int threads_;  ///< of a CTA
  int arrived_ = 0;
  int openings_ = 0;
};

}  // namespace qpn::test

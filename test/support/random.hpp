// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace qpn::test {

/// A seeded source of test data; failure messages print seed().
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : seed_(seed), engine_(seed) {}

  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  /// Uniform in [low, high].
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }

  [[nodiscard]] std::uint8_t byte() { return static_cast<std::uint8_t>(engine_()); }
  [[nodiscard]] std::uint32_t word() { return static_cast<std::uint32_t>(engine_()); }
  [[nodiscard]] float normal() { return std::normal_distribution<float>()(engine_); }

  [[nodiscard]] std::vector<float> normals(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal();
    return values;
  }

 private:
  std::uint64_t seed_;
  std::mt19937_64 engine_;
};

}  // namespace qpn::test

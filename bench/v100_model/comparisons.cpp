// SPDX-License-Identifier: Apache-2.0
#include "comparisons.hpp"

#include <span>

namespace qpn::bench::v100 {

namespace {

struct published_figure {
  format_id format;
  std::int64_t n;
  std::int64_t k;
  int m;
  published_time time;
};

constexpr published_figure predecessor_times[] = {
    {format_id::nvfp4, 8704, 5120, 8, {38.8, "QPN gen 1"}},
    {format_id::nvfp4, 8704, 5120, 16, {75.2, "QPN gen 1"}},
    {format_id::nvfp4, 5120, 4352, 8, {24.9, "in its server"}},
    {format_id::nvfp4, 5120, 4352, 16, {51.3, "QPN gen 1"}},
    {format_id::nvfp4, 62080, 5120, 1, {212.1, ""}},
    {format_id::nvfp4, 62080, 5120, 2, {215.5, ""}},
    {format_id::nvfp4, 62080, 5120, 4, {218.9, ""}},
    {format_id::nvfp4, 62080, 5120, 8, {229.9, ""}},
    {format_id::nvfp4, 62080, 5120, 16, {390.5, ""}},
    {format_id::fp8, 4096, 5120, 8, {28.20, "28.1 to 28.3"}},
    {format_id::fp8, 4096, 5120, 16, {34.6, ""}},
    {format_id::fp8, 5120, 1536, 8, {12.3, ""}},
    {format_id::fp8, 5120, 1536, 16, {14.5, ""}},
    {format_id::fp8, 3584, 5120, 8, {25.45, "25.3 to 25.6"}},
    {format_id::fp8, 3584, 5120, 16, {34.1, ""}},
};

constexpr published_figure peer_times[] = {
    {format_id::nvfp4, 8704, 5120, 1, {34.3, "int4"}},
    {format_id::nvfp4, 5120, 4352, 1, {24.0, "int4"}},
    {format_id::fp8, 4096, 5120, 1, {22.7, "int4, half the bytes"}},
};

std::optional<published_time> look_up(std::span<published_figure const> figures, format_id format,
                                      std::int64_t n, std::int64_t k, int m) {
  for (published_figure const& one : figures) {
    if (one.format == format && one.n == n && one.k == k && one.m == m) return one.time;
  }
  return std::nullopt;
}

}  // namespace

std::optional<published_time> predecessor_time(format_id format, std::int64_t n, std::int64_t k,
                                               int m) {
  return look_up(predecessor_times, format, n, k, m);
}

std::optional<published_time> peer_time(format_id format, std::int64_t n, std::int64_t k, int m) {
  return look_up(peer_times, format, n, k, m);
}

}  // namespace qpn::bench::v100

// SPDX-License-Identifier: Apache-2.0
#include "qpn/candidates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/emulated_gemm.hpp"
#include "support/random.hpp"

namespace qpn::test {
namespace {

// Keys.

TEST(candidate_key, orders_values_then_lower_ids_with_nan_first) {
  float const falling[] = {NAN,  INFINITY, 3e38F, 1.5F,   1e-45F,
                           0.0F, -1e-45F,  -2.0F, -3e38F, -INFINITY};
  std::vector<std::uint64_t> keys;
  for (float value : falling) {
    for (std::uint32_t id : {0u, 1u, 77u, 0x7ffffffeu}) {
      std::uint64_t const key = detail::candidate_key(value, id);
      EXPECT_TRUE(keys.empty() || key < keys.back()) << value << " id " << id;
      EXPECT_GT(key, detail::no_candidate);
      EXPECT_EQ(detail::candidate_id(key), static_cast<std::int32_t>(id));
      float const back = detail::candidate_value(key);
      EXPECT_TRUE(back == value || (std::isnan(back) && std::isnan(value))) << value;
      keys.push_back(key);
    }
  }
  EXPECT_EQ(detail::candidate_key(-0.0F, 3), detail::candidate_key(0.0F, 3));
  EXPECT_EQ(detail::candidate_key(-NAN, 3), detail::candidate_key(NAN, 3));
  EXPECT_EQ(detail::candidate_id(detail::no_candidate), -1);
  EXPECT_EQ(detail::candidate_value(detail::no_candidate), -INFINITY);
}

// Merges.

/// Lists [shards][m][candidates] of random values with ties, NaN, infinities and places that stay
/// free; the ids of a row differ.
struct random_lists {
  std::int64_t m;
  int candidates;
  int shards;
  std::vector<std::int32_t> ids;
  std::vector<float> values;

  /// `sparse`: all shards together have fewer than one list holds.
  random_lists(std::int64_t rows, int count, int shard_count, bool sparse, random_source& random)
      : m(rows), candidates(count), shards(shard_count) {
    for (int shard = 0; shard < shards; ++shard) {
      for (std::int64_t row = 0; row < m; ++row) {
        std::int64_t const filled = sparse ? random.integer(0, (count - 1) / shards)
                                    : random.integer(0, 3) == 0 ? random.integer(0, count)
                                                                : count;
        std::vector<std::pair<std::uint64_t, int>> keys;
        for (int i = 0; i < filled; ++i) {
          float value = static_cast<float>(random.integer(-6, 6));
          if (random.integer(0, 20) == 0) value = random.integer(0, 1) == 0 ? NAN : -INFINITY;
          std::int64_t const id = 1000 * shard + 10 * i + random.integer(0, 9);
          keys.emplace_back(detail::candidate_key(value, static_cast<std::uint32_t>(id)), i);
        }
        std::sort(keys.rbegin(), keys.rend());
        for (int i = 0; i < count; ++i) {
          std::uint64_t const key = i < filled ? keys[static_cast<std::size_t>(i)].first : 0;
          ids.push_back(detail::candidate_id(key));
          values.push_back(detail::candidate_value(key));
        }
      }
    }
  }

  [[nodiscard]] std::size_t merged_size() const { return static_cast<std::size_t>(m * candidates); }

  /// The merge of a row by sorting all of its entries.
  [[nodiscard]] std::vector<std::uint64_t> expected_row(std::int64_t row) const {
    std::vector<std::uint64_t> keys;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      for (std::int64_t i = 0; i < candidates; ++i) {
        auto const at = static_cast<std::size_t>((shard * m + row) * candidates + i);
        keys.push_back(
            ids[at] < 0 ? 0
                        : detail::candidate_key(values[at], static_cast<std::uint32_t>(ids[at])));
      }
    }
    std::sort(keys.rbegin(), keys.rend());
    keys.resize(static_cast<std::size_t>(candidates));
    return keys;
  }

  [[nodiscard]] merge_candidates_args args(std::vector<std::int32_t>& merged_ids,
                                           std::vector<float>& merged_values) const {
    merged_ids.assign(merged_size(), -7);
    merged_values.assign(merged_size(), 7.0F);
    merge_candidates_args args;
    args.m = m;
    args.candidates = candidates;
    args.shards = shards;
    args.ids = ids.data();
    args.values = values.data();
    args.merged_ids = merged_ids.data();
    args.merged_values = merged_values.data();
    return args;
  }
};

TEST(merge_candidates, gives_the_best_of_all_lists) {
  std::uint64_t seed = 1;
  for (int candidates : {1, 2, 3, 20, 32, 33, 64}) {
    for (int shards : {1, 2, 3, 4, 8}) {
      random_source random(seed);
      random_lists const lists(1 + static_cast<std::int64_t>(seed % 17), candidates, shards,
                               seed % 3 == 0, random);
      std::vector<std::int32_t> ids;
      std::vector<float> values;
      ASSERT_TRUE(merge_candidates(lists.args(ids, values)).ok());
      for (std::int64_t row = 0; row < lists.m; ++row) {
        std::vector<std::uint64_t> const expected = lists.expected_row(row);
        for (int i = 0; i < candidates; ++i) {
          std::uint64_t const key = expected[static_cast<std::size_t>(i)];
          auto const at = static_cast<std::size_t>(row * candidates + i);
          ASSERT_EQ(ids[at], detail::candidate_id(key)) << "seed " << seed << " place " << i;
          float const value = detail::candidate_value(key);
          ASSERT_EQ(std::memcmp(&values[at], &value, 4), 0) << "seed " << seed << " place " << i;
        }
      }
      ++seed;
    }
  }
}

TEST(merge_candidates, is_the_same_in_every_order_of_shards_and_without_values) {
  random_source random(50);
  random_lists lists(5, 20, 4, false, random);
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  ASSERT_TRUE(merge_candidates(lists.args(ids, values)).ok());
  std::ptrdiff_t const of_shard = 5 * 20;
  std::rotate(lists.ids.begin(), lists.ids.begin() + of_shard, lists.ids.end());
  std::rotate(lists.values.begin(), lists.values.begin() + of_shard, lists.values.end());
  std::vector<std::int32_t> rotated_ids;
  std::vector<float> rotated_values;
  merge_candidates_args args = lists.args(rotated_ids, rotated_values);
  args.merged_values = nullptr;
  ASSERT_TRUE(merge_candidates(args).ok());
  EXPECT_EQ(ids, rotated_ids);
}

TEST(merge_candidates, as_a_kernel_writes_each_entry_once_and_stays_inside) {
  std::uint64_t seed = 80;
  for (int candidates : {1, 3, 64}) {
    for (auto const& [shards, sparse] : {std::pair{1, false}, {4, false}, {4, true}}) {
      random_source random(seed++);
      random_lists const lists(7, candidates, shards, sparse, random);
      std::vector<std::int32_t> host_ids;
      std::vector<float> host_values;
      ASSERT_TRUE(merge_candidates(lists.args(host_ids, host_values)).ok());
      std::vector<std::int32_t> ids;
      std::vector<float> values;
      merge_candidates_args const args = lists.args(ids, values);
      emulator_memory memory;
      memory.add_region("ids", lists.ids.data(), lists.ids.size() * 4, region_use::data);
      memory.add_region("values", lists.values.data(), lists.values.size() * 4, region_use::data);
      memory.add_region("merged ids", ids.data(), ids.size() * 4, region_use::output);
      memory.add_region("merged values", values.data(), values.size() * 4, region_use::output);
      emulation_options launch;
      launch.threads = detail::merge_candidates_threads;
      launch.blocks = static_cast<int>((detail::merge_entries(args) - 1) / launch.threads + 1);
      launch.memory = &memory;
      launch.order = cta_order::shuffled;
      emulation_report const report = emulate(launch, [&](emulated_lane& lane) {
        program_lane of_program(lane);
        detail::merge_candidates_program(of_program, args);
      });
      EXPECT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(all_equal(report.write_counts("merged ids"), 1));
      EXPECT_TRUE(all_equal(report.write_counts("merged values"), 1));
      EXPECT_EQ(ids, host_ids);
      EXPECT_EQ(std::memcmp(values.data(), host_values.data(), values.size() * 4), 0);
    }
  }
}

TEST(merge_candidates, refuses_what_is_no_set_of_lists) {
  random_source random(90);
  random_lists const lists(2, 3, 2, false, random);
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  auto const refused = [&](auto change) {
    merge_candidates_args args = lists.args(ids, values);
    change(args);
    status const merged = merge_candidates(args);
    EXPECT_EQ(merged.what[0] == '\0', merged.ok());
    for (std::int32_t id : ids) EXPECT_EQ(id, -7) << "written though refused";
    return merged.code;
  };
  using args_ref = merge_candidates_args&;
  for (int candidates : {-1, 0, 65}) {
    EXPECT_EQ(refused([&](args_ref a) { a.candidates = candidates; }), status_code::invalid_shape);
  }
  for (int shards : {-1, 0, 1025}) {
    EXPECT_EQ(refused([&](args_ref a) { a.shards = shards; }), status_code::invalid_shape);
  }
  std::int64_t const most = std::numeric_limits<std::int32_t>::max() / 6;
  for (std::int64_t m : {std::int64_t{-1}, most + 1}) {
    EXPECT_EQ(refused([&](args_ref a) { a.m = m; }), status_code::invalid_shape);
  }
  EXPECT_EQ(refused([](args_ref a) { a.ids = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(refused([](args_ref a) { a.values = nullptr; }), status_code::invalid_value);
  EXPECT_EQ(refused([](args_ref a) { a.merged_ids = nullptr; }), status_code::invalid_value);
  auto const shifted = [](auto*& pointer) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(
        reinterpret_cast<std::uintptr_t>(pointer) + 2);
  };
  EXPECT_EQ(refused([&](args_ref a) { shifted(a.ids); }), status_code::misaligned);
  EXPECT_EQ(refused([&](args_ref a) { shifted(a.values); }), status_code::misaligned);
  EXPECT_EQ(refused([&](args_ref a) { shifted(a.merged_ids); }), status_code::misaligned);
  EXPECT_EQ(refused([&](args_ref a) { shifted(a.merged_values); }), status_code::misaligned);
  EXPECT_EQ(refused([](args_ref a) {
              a.m = 0;
              a.ids = nullptr;
            }),
            status_code::ok);
}

}  // namespace
}  // namespace qpn::test

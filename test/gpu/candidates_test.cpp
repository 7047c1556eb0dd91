// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gpu/gemm_bound.hpp"
#include "gpu/gemm_call.hpp"
#include "support/expected_candidates.hpp"

// Lists of the best columns on the GPU, and their merge over shards.

namespace qpn::test {
namespace {

constexpr weight_kind nvfp4_tensor{format_id::nvfp4, scale_mode::tensor, dtype::f16};
constexpr weight_kind f16_dense{format_id::dense16, scale_mode::none, dtype::f16};
constexpr int counts[] = {1, 2, 3, 20, 32, 33, 64};

gemm_problem candidates_problem(int candidates) {
  gemm_problem problem = f32_problem();
  problem.max_m = candidates == 1 ? gemm_max_m : gemm_candidates_max_m;
  problem.candidates = candidates;
  return problem;
}

/// Expects the lists of a result to be those of its y.
void expect_lists_of_y(gpu_gemm const& gemm, gemm_operands const& operands,
                       gemm_result const& result, char const* what) {
  int const c = gemm.problem().candidates;
  std::int64_t const n = gemm.columns();
  for (std::int64_t i = 0; i < operands.m; ++i) {
    std::vector<float> row;
    for (std::int64_t j = 0; j < n; ++j) {
      row.push_back(value_of(result.y[static_cast<std::size_t>(i * n + j)], dtype::f32));
    }
    expected_list const list =
        expected_candidates(row.data(), n, c, operands.first_id, operands.id_limit);
    auto const first = static_cast<std::ptrdiff_t>(i * c);
    std::vector<std::int32_t> const ids(result.candidate_ids.begin() + first,
                                        result.candidate_ids.begin() + first + c);
    EXPECT_EQ(ids, list.ids) << what << ", candidates " << c << " row " << i;
    EXPECT_EQ(std::memcmp(result.candidate_values.data() + first, list.values.data(),
                          list.values.size() * sizeof(float)),
              0)
        << what << ", candidates " << c << " row " << i;
  }
}

class gpu_candidates_kind : public testing::TestWithParam<weight_kind> {};
INSTANTIATE_TEST_SUITE_P(gpu, gpu_candidates_kind, testing::ValuesIn(all_weight_kinds),
                         [](auto const& tested) { return to_string(tested.param); });

TEST_P(gpu_candidates_kind, are_the_best_of_the_stored_row) {
  random_source random(11);
  for (std::int64_t n : {24, 300, 9000}) {
    gpu_weight const weight = random_weight(GetParam(), n, n == 9000 ? 256 : 1040, random);
    for (int c : counts) {
      gpu_gemm const gemm(weight, candidates_problem(c));
      for (std::int64_t m : {1, 8, 13, 16, 70}) {
        if (m > gemm.problem().max_m) continue;
        gemm_operands operands = random_operands(weight, m, random);
        operands.bias = random.normals(n);
        operands.first_id = 5000;
        operands.id_limit = m == 8 ? 5000 + static_cast<std::int32_t>(n) / 2
                                   : std::numeric_limits<std::int32_t>::max();
        gemm_result const result = run(gemm, operands);
        expect_lists_of_y(gemm, operands, result, "with y");
        operands.with_y = false;
        gemm_result const without = run(gemm, operands);
        EXPECT_EQ(without.candidate_ids, result.candidate_ids) << "y is null";
      }
    }
  }
}

TEST_P(gpu_candidates_kind, come_from_simt_too) {
  if (GetParam().scale == scale_mode::block) GTEST_SKIP() << "simt takes no block scales";
  random_source random(12);
  gpu_weight const weight = random_quadpair_weight(GetParam(), 1000, 528, random);
  for (int c : counts) {
    gemm_problem problem = candidates_problem(c);
    problem.algorithm = gemm_algorithm::simt;
    problem.max_m = gemm_simt_max_m;
    gpu_gemm const gemm(weight, problem);
    for (std::int64_t m : {1, 2, 3}) {
      gemm_operands const operands = random_operands(weight, m, random);
      expect_lists_of_y(gemm, operands, run(gemm, operands), "simt");
    }
  }
}

TEST(gpu_candidates, take_the_lowest_of_equal_columns_and_nan_before_all) {
  // All rows of the weight are alike and all sums exact, so every column ties but for the bias.
  random_source random(13);
  published_weight published(f16_dense, {300}, 512, random);
  std::vector<std::uint8_t>& codes = published.parts()[0].codes;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    std::uint16_t const word = encode_f16(static_cast<float>(i / 2 % 512 % 7) - 3.0F);
    std::memcpy(codes.data() + i, &word, 2);
  }
  gpu_weight const weight(std::move(published));
  for (int c : counts) {
    gpu_gemm const gemm(weight, candidates_problem(c));
    gemm_operands operands;
    operands.m = 12;
    for (std::int64_t i = 0; i < 12 * 512; ++i) {
      operands.x.push_back(encode_f16(static_cast<float>(random.integer(-4, 4))));
    }
    auto const expect_first = [&](std::int32_t id, char const* what) {
      gemm_result const result = run(gemm, operands);
      expect_lists_of_y(gemm, operands, result, what);
      for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(result.candidate_ids[i * static_cast<std::size_t>(c)], id) << what;
      }
    };
    expect_first(0, "all equal");
    operands.bias.assign(300, 0.0F);
    operands.bias[250] = operands.bias[130] = operands.bias[70] = 1.0F;
    expect_first(70, "three equal in three tile groups");
    operands.id_limit = 70;
    expect_first(0, "the best ones are beyond the limit");
    operands.id_limit = 0;
    expect_first(-1, "none is below the limit");
    operands.id_limit = std::numeric_limits<std::int32_t>::max();
    operands.bias[299] = INFINITY;
    expect_first(299, "infinity");
    operands.bias[200] = operands.bias[101] = NAN;
    expect_first(101, "NaN");
    operands.bias.clear();
    operands.x[3 * 512 + 511] = 0x7e00;  // row 3 is NaN in every column
    expect_first(0, "a NaN row");
  }
}

TEST(gpu_candidates, are_the_same_in_every_launch_and_on_a_large_head) {
  random_source random(14);
  gpu_weight const weight = random_weight(nvfp4_tensor, 62080, 512, random);
  for (int c : {20, 64}) {
    gpu_gemm const gemm(weight, candidates_problem(c));
    gemm_operands const operands = random_operands(weight, 9, random);
    gpu_call call(gemm, operands);
    device_stream const stream;
    for (int launch = 0; launch < 10; ++launch) {
      call.reset();
      call.launch(stream.get());
      stream.wait();
      expect_lists_of_y(gemm, operands, call.result(), "large head");
    }
  }
}

TEST(gpu_candidates, of_shards_merge_on_the_gpu_as_on_the_host) {
  random_source random(15);
  constexpr std::int64_t m = 11;
  for (int c : counts) {
    for (int shards : {1, 2, 4}) {
      std::vector<std::int32_t> ids;
      std::vector<float> values;
      for (int shard = 0; shard < shards; ++shard) {
        gpu_weight const weight = random_weight(nvfp4_tensor, 200, 272, random);
        gpu_gemm const gemm(weight, candidates_problem(c));
        gemm_operands operands = random_operands(weight, m, random);
        operands.first_id = 200 * shard;
        operands.id_limit = 150;  // a shard without candidates, and one with few
        gemm_result const result = run(gemm, operands);
        ids.insert(ids.end(), result.candidate_ids.begin(), result.candidate_ids.end());
        values.insert(values.end(), result.candidate_values.begin(), result.candidate_values.end());
      }
      auto const entries = static_cast<std::size_t>(m * c);
      std::vector<std::int32_t> host_ids(entries);
      std::vector<float> host_values(entries);
      merge_candidates_args args;
      args.m = m;
      args.candidates = c;
      args.shards = shards;
      args.ids = ids.data();
      args.values = values.data();
      args.merged_ids = host_ids.data();
      args.merged_values = host_values.data();
      require(merge_candidates(args));

      device_memory device_ids(ids.size() * 4);
      device_memory device_values(values.size() * 4);
      device_memory merged_ids(entries * 4);
      device_memory merged_values(entries * 4);
      device_ids.upload(ids);
      device_values.upload(values);
      args.ids = reinterpret_cast<std::int32_t const*>(device_ids.data());
      args.values = reinterpret_cast<float const*>(device_values.data());
      args.merged_ids = reinterpret_cast<std::int32_t*>(merged_ids.data());
      args.merged_values = reinterpret_cast<float*>(merged_values.data());
      device_stream const stream;
      require(launch_merge_candidates(args, stream.get()));
      stream.wait();
      EXPECT_EQ(std::memcmp(merged_ids.download().data(), host_ids.data(), entries * 4), 0);
      EXPECT_EQ(std::memcmp(merged_values.download().data(), host_values.data(), entries * 4), 0);
      EXPECT_TRUE(merged_ids.guards_are_intact() && merged_values.guards_are_intact());
    }
  }
}

}  // namespace
}  // namespace qpn::test

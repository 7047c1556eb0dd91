// SPDX-License-Identifier: Apache-2.0
// cpu::gemm over the shapes of the demo checkpoint and one that exceeds the caches.
// Machine-readable output:
//   cpu_gemm_bench --benchmark_format=json --benchmark_filter=nvfp4
// Counters: weights/s and fma/s are rates of products, bytes/s is of packed weight bytes.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <qpn/cpu/gemm.hpp>
#include <qpn/prepack.hpp>
#include <qpn/quantize.hpp>
#include <qpn/reference/gemm.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

/// A quantised and packed random weight, and the published part that it was made from.
struct random_weight {
  random_weight(qpn::format_id format, std::int64_t n, std::int64_t k) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    std::vector<float> w(static_cast<std::size_t>(n * k));
    for (float& value : w) value = normal(random);
    part.n = n;
    auto scale = qpn::scale_mode::tensor;
    codes.resize(w.size() * 2);
    block_scales.resize(w.size() / 16);
    qpn::status made;
    if (format == qpn::format_id::nvfp4) {
      made =
          qpn::quantize_nvfp4(w.data(), n, k, codes.data(), block_scales.data(), part.global_scale);
    } else if (format == qpn::format_id::fp8) {
      made = qpn::quantize_fp8_tensor(w.data(), n, k, codes.data(), part.global_scale);
    } else {
      scale = qpn::scale_mode::none;
      for (std::size_t i = 0; i < w.size(); ++i) {
        std::uint16_t const word = qpn::encode_bf16(w[i]);
        codes[2 * i] = static_cast<std::uint8_t>(word);
        codes[2 * i + 1] = static_cast<std::uint8_t>(word >> 8);
      }
    }
    part.codes = codes.data();
    part.block_scales = block_scales.data();
    if (made.ok())
      made = qpn::make_packed_layout(format, scale, n, k, qpn::dtype::bf16, packed.layout);
    bytes.resize(static_cast<std::size_t>(packed.layout.total_bytes) + 64);
    std::size_t const skip = (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
    if (made.ok()) made = qpn::prepack(packed.layout, &part, 1, bytes.data() + skip);
    packed.data = bytes.data() + skip;
    ok = made.ok();
  }

  qpn::packed_weight packed;
  qpn::weight_part part;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scales;
  std::vector<std::byte> bytes;
  bool ok = false;
};

/// Largest |y - reference| / sum |x||w| over a few columns of every row.
double worst_error(random_weight const& weight, std::vector<float> const& x,
                   std::vector<float> const& y, std::int64_t m) {
  std::int64_t const n = weight.packed.layout.n;
  std::int64_t const k = weight.packed.layout.k;
  double worst = 0.0;
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = row % 5; column < n; column += 1 + n / 16) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (std::int64_t i = 0; i < k; ++i) {
        double const product =
            static_cast<double>(x[static_cast<std::size_t>(row * k + i)]) *
            qpn::reference::weight_at(weight.packed.layout, weight.part, column, i);
        sum += product;
        magnitude += std::fabs(product);
      }
      double const result = static_cast<double>(y[static_cast<std::size_t>(row * n + column)]);
      worst = std::fmax(worst, std::fabs(result - sum) / magnitude);
    }
  }
  return worst;
}

void bm_cpu_gemm(benchmark::State& state, qpn::format_id format, qpn::cpu::isa path, int threads,
                 std::int64_t n, std::int64_t k, std::int64_t m) {
  random_weight const weight(format, n, k);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (float& value : x) value = normal(random);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  qpn::cpu::thread_pool pool(threads);
  qpn::cpu::gemm_args args;
  args.x = x.data();
  args.m = m;
  args.ldx = k;
  args.y = y.data();
  args.ldy = n;
  args.path = path;
  if (!weight.ok || !qpn::cpu::gemm(weight.packed, args, pool).ok() ||
      worst_error(weight, x, y, m) > 1e-5) {
    state.SkipWithError("the result differs from the fp64 reference");
    return;
  }
  for (auto _ : state) {
    qpn::status const done = qpn::cpu::gemm(weight.packed, args, pool);
    benchmark::DoNotOptimize(done.code);
    benchmark::ClobberMemory();
  }
  auto const rate = benchmark::Counter::kIsIterationInvariantRate;
  double const weights = static_cast<double>(n) * static_cast<double>(k);
  state.counters["weights"] = benchmark::Counter(weights, rate);
  state.counters["fma"] = benchmark::Counter(weights * static_cast<double>(m), rate);
  state.counters["bytes"] = benchmark::Counter(
      static_cast<double>(weight.packed.layout.total_bytes), rate, benchmark::Counter::kIs1024);
}

struct shape {
  std::int64_t n;
  std::int64_t k;
};

void register_all() {
  constexpr shape shapes[] = {{4096, 192}, {192, 1536}, {1536, 192},
                              {192, 768},  {5120, 192}, {8192, 4096}};
  for (qpn::format_id const format :
       {qpn::format_id::nvfp4, qpn::format_id::fp8, qpn::format_id::dense16}) {
    for (int const threads : {1, 2}) {
      for (shape const s : shapes) {
        for (std::int64_t const m : {1, 2, 4, 8, 16, 64}) {
          std::string const name = std::string("bm_cpu_gemm/") + qpn::to_string(format) +
                                   "/threads:" + std::to_string(threads) +
                                   "/n:" + std::to_string(s.n) + "/k:" + std::to_string(s.k) +
                                   "/m:" + std::to_string(m);
          benchmark::RegisterBenchmark(name.c_str(), bm_cpu_gemm, format, qpn::cpu::isa::automatic,
                                       threads, s.n, s.k, m)
              ->UseRealTime();
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::fprintf(stderr, "cpu::gemm takes %s here\n", qpn::cpu::to_string(qpn::cpu::best_isa()));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

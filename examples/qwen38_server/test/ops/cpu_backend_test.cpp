// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/kernels.hpp"
#include "ops/cpu/simd.hpp"
#include "support/error.hpp"

namespace {

using namespace qwen38::ops;

std::vector<float> random_values(std::uint64_t seed, std::size_t count, float scale = 1.0F) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

tensor view(std::vector<float>& values, std::int64_t rows) {
  std::int64_t const cols = rows == 0 ? 0 : std::ssize(values) / rows;
  return {values.data(), qpn::dtype::f32, rows, cols, cols};
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double relative_error(std::vector<float> const& got, std::vector<double> const& wanted) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / size);
}

TEST(cpu_simd, load_f16_decodes_every_finite_half_exactly) {
  for (std::uint32_t first = 0; first < 0x10000; first += 8) {
    std::uint16_t halves[8];
    for (std::uint32_t i = 0; i < 8; ++i) halves[i] = static_cast<std::uint16_t>(first + i);
    cpu::f32x8 lanes;
    cpu::load_f16(halves, lanes);
    for (int i = 0; i < 8; ++i) {
      float const wanted = qpn::decode_f16(halves[i]);
      if (!std::isfinite(wanted)) continue;
      float const got = lanes[i];
      ASSERT_EQ(std::memcmp(&got, &wanted, sizeof got), 0) << "half 0x" << std::hex << halves[i];
    }
  }
}

TEST(cpu_rms_norm, matches_fp64_for_any_length_with_and_without_the_unit_offset) {
  for (std::size_t count : {1U, 7U, 8U, 16U, 17U, 128U, 192U, 255U}) {
    std::uint64_t const seed = count;
    auto const x = random_values(seed, count, 3.0F);
    auto const w = random_values(seed + 1, count);
    for (bool offset : {false, true}) {
      std::vector<float> y(count);
      cpu::rms_norm_row(x.data(), w.data(), static_cast<std::int64_t>(count), 1e-6F, offset,
                        y.data());
      double mean = 0;
      for (float value : x) mean += static_cast<double>(value) * value;
      mean /= static_cast<double>(count);
      std::vector<double> wanted(count);
      for (std::size_t i = 0; i < count; ++i) {
        wanted[i] = x[i] / std::sqrt(mean + 1e-6) * ((offset ? 1.0 : 0.0) + w[i]);
      }
      EXPECT_LT(relative_error(y, wanted), 1e-6) << "seed " << seed << ", offset " << offset;
    }
  }
}

/// A pass that holds these rows.
std::unique_ptr<pass> make_pass(backend& device, pass_rows const& rows) {
  auto made = device.make_pass({1 << 20, 64, 1 << 20, 64});
  device.set_pass(*made, rows);
  return made;
}
std::unique_ptr<pass> make_pass(backend& device, row_span const& span,
                                std::int64_t slot_offset = 0) {
  return make_pass(device, {.spans = {&span, 1}, .slot_offset = slot_offset});
}

struct attention_case {
  attention_shape shape{8, 4, 256, 64, 1e7, 1e-6F};
  std::vector<float> q_gate, kv, q_norm, k_norm;
  std::int64_t rows;

  explicit attention_case(std::int64_t count, std::uint64_t seed) : rows(count) {
    auto const n = static_cast<std::size_t>(count);
    q_gate = random_values(seed, n * 8 * 512);
    kv = random_values(seed + 1, n * 2 * 4 * 256);
    q_norm = random_values(seed + 2, 256, 0.3F);
    k_norm = random_values(seed + 3, 256, 0.3F);
  }

  /// The same rows cut at `cuts`, one call each.
  std::vector<float> run(backend& device, std::vector<std::int64_t> cuts,
                         std::int64_t slot_offset = 0) {
    std::vector<std::int32_t> pages;  // in no order, among others
    for (std::int64_t i = 0; i * kv_page_tokens < rows + slot_offset; ++i)
      pages.push_back(static_cast<std::int32_t>(3 + 5 * (i ^ 1)));
    auto cache = device.make_kv_cache(shape, 2, 5 * std::ssize(pages) + 10);
    auto const qn = device.make_constants(q_norm);
    auto const kn = device.make_constants(k_norm);
    std::vector<float> out(static_cast<std::size_t>(rows * 8 * 256));
    cuts.push_back(rows);
    std::int64_t first = 0;
    for (std::int64_t cut : cuts) {
      auto const p = make_pass(device, {1, first, 0, cut - first, false, pages}, slot_offset);
      device.store_kv(*cache, 1, *p, view(kv, rows).slice_rows(first, cut - first), *kn);
      device.attention(*cache, 1, *p, view(q_gate, rows).slice_rows(first, cut - first), *qn,
                       view(out, rows).slice_rows(first, cut - first));
      first = cut;
    }
    return out;
  }
};

std::vector<double> norm_and_rotate(float const* x, std::vector<float> const& w,
                                    std::int64_t position) {
  double mean = 0;
  for (std::size_t i = 0; i < 256; ++i) mean += static_cast<double>(x[i]) * x[i];
  double const scale = 1.0 / std::sqrt(mean / 256 + 1e-6);
  std::vector<double> y(256);
  for (std::size_t i = 0; i < 256; ++i) y[i] = x[i] * scale * (1.0 + w[i]);
  for (std::size_t i = 0; i < 32; ++i) {
    double const angle =
        static_cast<double>(position) * std::pow(1e7, -2.0 * static_cast<double>(i) / 64.0);
    double const low = y[i];
    double const high = y[i + 32];
    y[i] = low * std::cos(angle) - high * std::sin(angle);
    y[i + 32] = high * std::cos(angle) + low * std::sin(angle);
  }
  return y;
}

TEST(cpu_attention, matches_fp64_within_the_rounding_of_an_fp16_cache) {
  auto device = cpu::make_backend(2);
  attention_case c(70, 11);
  auto const got = c.run(*device, {});
  std::vector<double> wanted;
  for (std::int64_t t = 0; t < c.rows; ++t) {
    for (std::int64_t head = 0; head < 8; ++head) {
      float const* source = c.q_gate.data() + (t * 8 + head) * 512;
      auto const q = norm_and_rotate(source, c.q_norm, t);
      std::vector<double> weights;
      for (std::int64_t s = 0; s <= t; ++s) {
        auto const k = norm_and_rotate(c.kv.data() + (s * 8 + head / 2) * 256, c.k_norm, s);
        double score = 0;
        for (std::size_t i = 0; i < 256; ++i) score += q[i] * k[i];
        weights.push_back(std::exp(score / 16));
      }
      double mass = 0;
      for (double weight : weights) mass += weight;
      for (std::int64_t i = 0; i < 256; ++i) {
        double sum = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          sum += weights[static_cast<std::size_t>(s)] *
                 c.kv[static_cast<std::size_t>((s * 8 + 4 + head / 2) * 256 + i)];
        }
        wanted.push_back(sum / mass / (1.0 + std::exp(-static_cast<double>(source[256 + i]))));
      }
    }
  }
  EXPECT_LT(relative_error(got, wanted), 5e-4);
}

TEST(cpu_attention, any_chunking_and_thread_count_gives_the_same_bits) {
  auto one = cpu::make_backend(1);
  auto three = cpu::make_backend(3);
  attention_case c(41, 12);
  auto const whole = c.run(*one, {});
  EXPECT_TRUE(same_bits(whole, c.run(*three, {})));
  EXPECT_TRUE(same_bits(whole, c.run(*one, {1})));
  EXPECT_TRUE(same_bits(whole, c.run(*three, {7, 8, 9, 32, 40})));
}

// The same rows one slot further on, over page borders at other places: the slot is no part of the
// result.
TEST(cpu_attention, the_slot_offset_changes_no_bit) {
  auto device = cpu::make_backend(2);
  for (std::int64_t rows : {1, 63, 64, 65, 127, 128, 129, 200}) {
    attention_case c(rows, 13 + static_cast<std::uint64_t>(rows));
    auto const plain = c.run(*device, {});
    EXPECT_TRUE(same_bits(plain, c.run(*device, {}, 1))) << "rows " << rows;
    if (rows < 3) continue;
    EXPECT_TRUE(same_bits(plain, c.run(*device, {1, rows / 2, rows - 1}, 1))) << "rows " << rows;
  }
}

// Offsets into the pool need 64 bits: the last page of one that is larger than 4 Gi values. Memory
// that is not touched costs nothing.
TEST(cpu_attention, reaches_the_top_page_of_a_huge_pool) {
  auto device = cpu::make_backend(1);
  attention_case c(3, 14);
  constexpr std::int64_t pages = 33000;  // two layers of 2.2e9 values
  auto cache = device->make_kv_cache(c.shape, 2, pages);
  auto const qn = device->make_constants(c.q_norm);
  auto const kn = device->make_constants(c.k_norm);
  auto const wanted = c.run(*device, {});
  for (std::int32_t page : {0, 32767, 32999}) {
    std::vector<float> out(wanted.size());
    auto const p = make_pass(*device, {0, 0, 0, 3, false, {&page, 1}});
    device->store_kv(*cache, 1, *p, view(c.kv, 3), *kn);
    device->attention(*cache, 1, *p, view(c.q_gate, 3), *qn, view(out, 3));
    EXPECT_TRUE(same_bits(out, wanted)) << "page " << page;
  }
}

TEST(cpu_attention, refuses_pages_that_do_not_hold_the_rows) {
  auto device = cpu::make_backend(1);
  attention_case c(65, 15);
  auto cache = device->make_kv_cache(c.shape, 1, 4);
  auto const kn = device->make_constants(c.k_norm);
  auto const store = [&](std::vector<std::int32_t> const& pages, std::int64_t rows,
                         std::int64_t slot_offset) {
    auto const p = make_pass(*device, {2, 0, 0, rows, false, pages}, slot_offset);
    device->store_kv(*cache, 0, *p, view(c.kv, 65).slice_rows(0, rows), *kn);
  };
  EXPECT_NO_THROW(store({3, 0}, 65, 1));
  EXPECT_NO_THROW(store({3}, 64, 0));
  EXPECT_THROW(store({3}, 65, 0), qwen38::error);
  EXPECT_THROW(store({3}, 64, 1), qwen38::error);
  EXPECT_THROW(store({}, 1, 0), qwen38::error);
  EXPECT_THROW(store({4}, 1, 0), qwen38::error);
  EXPECT_THROW(store({-1}, 1, 0), qwen38::error);
  EXPECT_THROW(store({3, -1}, 65, 0), qwen38::error);
  EXPECT_NO_THROW(store({3, -1}, 64, 0));  // only what is needed is looked at
}

struct gdn_case {
  gdn_shape shape{4, 12, 128, 128, 4, 1e-6F};
  std::int64_t rows;
  std::vector<float> qkvz, ba, conv, a_log, dt_bias, norm;
  std::unique_ptr<constants> conv_c, a_log_c, dt_bias_c, norm_c;

  gdn_case(backend& device, std::int64_t count, std::uint64_t seed,
           gdn_shape wanted = {4, 12, 128, 128, 4, 1e-6F})
      : shape(wanted), rows(count) {
    auto const n = static_cast<std::size_t>(count);
    auto const channels = static_cast<std::size_t>(shape.conv_channels());
    auto const heads = static_cast<std::size_t>(shape.num_value_heads);
    qkvz = random_values(seed, n * (channels + static_cast<std::size_t>(shape.value_channels())));
    ba = random_values(seed + 1, n * 2 * heads);
    conv = random_values(seed + 2, channels * static_cast<std::size_t>(shape.conv_kernel), 0.5F);
    a_log = random_values(seed + 3, heads, 0.5F);
    dt_bias = random_values(seed + 4, heads);
    norm = random_values(seed + 5, static_cast<std::size_t>(shape.value_dim));
    conv_c = device.make_constants(conv);
    a_log_c = device.make_constants(a_log);
    dt_bias_c = device.make_constants(dt_bias);
    norm_c = device.make_constants(norm);
  }

  void pass(backend& device, gdn_state& state, int lane, std::int64_t first, std::int64_t count,
            bool tentative, std::vector<float>& out) {
    auto const p = make_pass(device, {lane, first, 0, count, tentative});
    device.gdn(state, 0, *p, view(qkvz, rows).slice_rows(first, count),
               view(ba, rows).slice_rows(first, count),
               {conv_c.get(), a_log_c.get(), dt_bias_c.get(), norm_c.get()},
               view(out, rows).slice_rows(first, count));
  }

  [[nodiscard]] std::vector<float> empty() const {
    return std::vector<float>(static_cast<std::size_t>(rows * shape.value_channels()));
  }
  std::vector<float> run(backend& device, std::vector<std::int64_t> cuts) {
    auto state = device.make_gdn_state(shape, 1, 2, 16, 0);
    auto out = empty();
    cuts.push_back(rows);
    std::int64_t first = 0;
    for (std::int64_t cut : cuts) {
      pass(device, *state, 1, first, cut - first, false, out);
      first = cut;
    }
    return out;
  }
};

double silu64(double x) {
  return x / (1.0 + std::exp(-x));
}

/// The recurrence as the paper writes it, in fp64, head by head.
std::vector<double> gdn_reference(gdn_case const& c) {
  gdn_shape const& g = c.shape;
  std::int64_t const channels = g.conv_channels();
  std::int64_t const width = channels + g.value_channels();
  std::vector<double> out(static_cast<std::size_t>(c.rows * g.value_channels()));
  for (std::int64_t h = 0; h < g.num_value_heads; ++h) {
    std::int64_t const kh = h / (g.num_value_heads / g.num_key_heads);
    std::vector<double> s(static_cast<std::size_t>(g.key_dim * g.value_dim), 0.0);
    auto const mixed = [&](std::int64_t t, std::int64_t channel) {
      double sum = 0;
      for (std::int64_t j = 0; j < g.conv_kernel; ++j) {
        std::int64_t const source = t - (g.conv_kernel - 1) + j;
        if (source < 0) continue;
        sum += static_cast<double>(c.conv[static_cast<std::size_t>(channel * g.conv_kernel + j)]) *
               c.qkvz[static_cast<std::size_t>(source * width + channel)];
      }
      return silu64(sum);
    };
    for (std::int64_t t = 0; t < c.rows; ++t) {
      std::vector<double> q, k, v;
      double qq = 0;
      double kk = 0;
      for (std::int64_t i = 0; i < g.key_dim; ++i) {
        q.push_back(mixed(t, kh * g.key_dim + i));
        k.push_back(mixed(t, g.key_channels() + kh * g.key_dim + i));
        qq += q.back() * q.back();
        kk += k.back() * k.back();
      }
      for (double& value : q)
        value /= std::sqrt(qq + 1e-6) * std::sqrt(static_cast<double>(g.key_dim));
      for (double& value : k) value /= std::sqrt(kk + 1e-6);
      for (std::int64_t j = 0; j < g.value_dim; ++j)
        v.push_back(mixed(t, 2 * g.key_channels() + h * g.value_dim + j));
      auto const gate = [&](std::int64_t index) {
        return static_cast<double>(
            c.ba[static_cast<std::size_t>(t * 2 * g.num_value_heads + index)]);
      };
      double const beta = 1.0 / (1.0 + std::exp(-gate(h)));
      double const raw = gate(g.num_value_heads + h) + c.dt_bias[static_cast<std::size_t>(h)];
      double const decay =
          std::exp(-std::exp(static_cast<double>(c.a_log[static_cast<std::size_t>(h)])) *
                   std::log1p(std::exp(raw)));
      std::vector<double> o(static_cast<std::size_t>(g.value_dim));
      for (std::int64_t j = 0; j < g.value_dim; ++j) {
        auto const at = [&](std::int64_t i) -> double& {
          return s[static_cast<std::size_t>(i * g.value_dim + j)];
        };
        double recalled = 0;
        for (std::int64_t i = 0; i < g.key_dim; ++i) {
          at(i) *= decay;
          recalled += at(i) * k[static_cast<std::size_t>(i)];
        }
        double const u = beta * (v[static_cast<std::size_t>(j)] - recalled);
        for (std::int64_t i = 0; i < g.key_dim; ++i) {
          at(i) += k[static_cast<std::size_t>(i)] * u;
          o[static_cast<std::size_t>(j)] += at(i) * q[static_cast<std::size_t>(i)];
        }
      }
      double mean = 0;
      for (double value : o) mean += value * value;
      double const scale = 1.0 / std::sqrt(mean / static_cast<double>(g.value_dim) + 1e-6);
      for (std::int64_t j = 0; j < g.value_dim; ++j) {
        double const z =
            c.qkvz[static_cast<std::size_t>(t * width + channels + h * g.value_dim + j)];
        out[static_cast<std::size_t>(t * g.value_channels() + h * g.value_dim + j)] =
            o[static_cast<std::size_t>(j)] * scale * c.norm[static_cast<std::size_t>(j)] *
            silu64(z);
      }
    }
  }
  return out;
}

TEST(cpu_gdn, matches_the_fp64_recurrence) {
  auto device = cpu::make_backend(2);
  for (gdn_shape const shape :
       {gdn_shape{4, 12, 128, 128, 4, 1e-6F}, gdn_shape{2, 2, 16, 40, 4, 1e-6F},
        gdn_shape{2, 8, 16, 24, 4, 1e-6F}}) {
    gdn_case c(*device, 37, 21, shape);
    EXPECT_LT(relative_error(c.run(*device, {}), gdn_reference(c)), 2e-5);
  }
}

TEST(cpu_gdn, any_chunking_gives_the_same_bits) {
  auto one = cpu::make_backend(1);
  auto two = cpu::make_backend(2);
  gdn_case c(*one, 50, 22);
  auto const whole = c.run(*one, {});
  EXPECT_TRUE(same_bits(whole, c.run(*two, {})));
  EXPECT_TRUE(same_bits(whole, c.run(*two, {1, 2, 3, 4, 5})));
  EXPECT_TRUE(same_bits(whole, c.run(*one, {16, 17, 49})));
}

TEST(cpu_gdn, keeping_part_of_a_tentative_pass_equals_never_having_seen_the_rest) {
  auto device = cpu::make_backend(2);
  gdn_case c(*device, 40, 23);
  auto const wanted = c.run(*device, {});
  for (std::int64_t kept = 0; kept <= 8; ++kept) {
    auto state = device->make_gdn_state(c.shape, 1, 2, 16, 0);
    auto out = c.empty();
    c.pass(*device, *state, 1, 0, 20, false, out);
    auto discarded = c.empty();
    c.pass(*device, *state, 1, 20, 8, true, discarded);
    EXPECT_TRUE(std::equal(wanted.begin() + 20 * 1536, wanted.begin() + 28 * 1536,
                           discarded.begin() + 20 * 1536));
    device->gdn_keep(*state, 1, kept);
    std::copy_n(wanted.begin() + 20 * 1536, kept * 1536, out.begin() + 20 * 1536);
    c.pass(*device, *state, 1, 20 + kept, 20 - kept, false, out);
    EXPECT_TRUE(same_bits(out, wanted)) << "kept " << kept;
  }
}

TEST(cpu_gdn, a_reset_lane_starts_from_nothing_and_leaves_its_neighbour_alone) {
  auto device = cpu::make_backend(2);
  gdn_case c(*device, 12, 24);
  auto const wanted = c.run(*device, {});
  auto state = device->make_gdn_state(c.shape, 1, 2, 16, 0);
  auto out = c.empty();
  c.pass(*device, *state, 0, 0, 6, false, out);
  c.pass(*device, *state, 1, 0, 12, false, out);
  device->gdn_reset(*state, 1);
  std::ranges::fill(out, -1.0F);
  c.pass(*device, *state, 1, 0, 12, false, out);
  EXPECT_TRUE(same_bits(out, wanted));
  c.pass(*device, *state, 0, 6, 6, false, out);
  EXPECT_TRUE(same_bits(out, wanted));
}

TEST(cpu_gdn, a_snapshot_is_the_lanes_state_to_the_bit_and_stays_as_it_was) {
  auto device = cpu::make_backend(2);
  gdn_case c(*device, 30, 25);
  auto const wanted = c.run(*device, {});
  auto state = device->make_gdn_state(c.shape, 1, 2, 16, 3);
  auto out = c.empty();
  c.pass(*device, *state, 0, 0, 17, false, out);
  device->gdn_save(*state, 0, 2);
  c.pass(*device, *state, 0, 17, 13, false, out);
  EXPECT_TRUE(same_bits(out, wanted));
  auto const row = static_cast<std::ptrdiff_t>(c.shape.value_channels());
  for (int lane : {1, 0, 1}) {  // into another lane, over the lane's own later state, and again
    auto again = c.empty();
    std::copy_n(wanted.begin(), 17 * row, again.begin());
    device->gdn_load(*state, lane, 2);
    c.pass(*device, *state, lane, 17, 13, false, again);
    EXPECT_TRUE(same_bits(again, wanted)) << "lane " << lane;
  }
  EXPECT_THROW(device->gdn_save(*state, 0, 3), qwen38::error);
  EXPECT_THROW(device->gdn_load(*state, 0, -1), qwen38::error);
}

TEST(cpu_backend, shapes_that_the_kernels_cannot_hold_are_refused_by_name) {
  auto device = cpu::make_backend(1);
  auto const sentence = [](auto&& make) {
    try {
      make();
    } catch (qwen38::error const& problem) {
      return std::string(problem.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(sentence([&] {
              device->make_kv_cache({2, 1, 40, 8, 1e7, 1e-6F}, 1, 8);
            }),
            "head_dim 40: the CPU backend expects a multiple of 16");
  EXPECT_EQ(sentence([&] {
              device->make_gdn_state({1, 1, 16, 12, 4, 1e-6F}, 1, 1, 1, 0);
            }),
            "linear_value_head_dim 12: the CPU backend expects a multiple of 8");
  EXPECT_EQ(sentence([&] {
              device->make_gdn_state({1, 1, 16, 16, 17, 1e-6F}, 1, 1, 1, 0);
            }),
            "linear_conv_kernel_dim 17: the CPU backend expects at most 16");
}

TEST(cpu_best_tokens, the_lowest_of_equal_ids_wins_within_the_range_and_what_is_no_number_first) {
  auto device = cpu::make_backend(1);
  std::vector<std::uint16_t> weights;  // row i of the head gives logits {a_i, b_i}
  for (float value : {1.F, -5.F, 3.F, -7.F, 3.F, -5.F, 2.F, -5.F, 9.F, 0.F})
    weights.push_back(qpn::encode_f16(value));
  qpn::weight_part part;
  part.n = 5;
  part.codes = weights.data();
  linear_source source;
  source.dense_type = qpn::dtype::f16;
  source.k = 2;
  source.parts = {&part, 1};
  source.use = linear_use::head;
  auto const w = device->make_linear(source);
  std::vector<float> x = {1, 0, 0, 1, 0, std::nanf("")};
  token_list best;
  auto const memory = device->make_tokens(3, best);
  device->best_tokens(*w, view(x, 3), 10, 14, best);
  EXPECT_EQ(best[0].id, 11);
  EXPECT_EQ(best[0].value, 3.0F);
  EXPECT_EQ(best[1].id, 10);
  EXPECT_EQ(best[1].value, -5.0F);
  EXPECT_EQ(best[2].id, 10);
  EXPECT_TRUE(std::isnan(best[2].value));
  device->best_tokens(*w, view(x, 3), 10, 10, best);
  EXPECT_EQ(best[0].id, -1);
}

TEST(cpu_gate_up, multiplies_the_activated_gate_by_the_up_half) {
  auto device = cpu::make_backend(1);
  std::vector<std::uint16_t> weights;
  for (float value : random_values(31, 2 * 24 * 16)) weights.push_back(qpn::encode_f16(value));
  std::vector<qpn::weight_part> parts(2);
  parts[0].n = parts[1].n = 24;
  parts[0].codes = weights.data();
  parts[1].codes = weights.data() + 24 * 16;
  linear_source source;
  source.dense_type = qpn::dtype::f16;
  source.k = 16;
  source.parts = parts;
  source.use = linear_use::gate_up;
  auto const w = device->make_linear(source);
  auto x = random_values(32, 3 * 16);
  std::vector<float> y(3 * 24);
  device->gate_up(*w, view(x, 3), view(y, 3));
  std::vector<double> wanted;
  for (std::size_t r = 0; r < 3; ++r) {
    auto const product = [&](std::size_t n) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k)
        sum += static_cast<double>(x[r * 16 + k]) * qpn::decode_f16(weights[n * 16 + k]);
      return sum;
    };
    for (std::size_t i = 0; i < 24; ++i) wanted.push_back(silu64(product(i)) * product(24 + i));
  }
  EXPECT_LT(relative_error(y, wanted), 1e-6);
}

TEST(cpu_rows, moves_take_the_rows_named_and_touch_no_other) {
  auto device = cpu::make_backend(1);
  auto x = random_values(33, 5 * 7);
  std::vector<float> y(4 * 7, 8.0F);
  auto wanted = y;
  std::vector<row_move> const moves = {{4, 0}, {1, 3}};
  auto const p = make_pass(*device, {.moves = {std::span<row_move const>(), moves}});
  device->move_rows(*p, 1, view(x, 5), view(y, 4));
  std::copy_n(x.begin() + 4 * 7, 7, wanted.begin());
  std::copy_n(x.begin() + 7, 7, wanted.begin() + 3 * 7);
  EXPECT_EQ(y, wanted);
}

TEST(cpu_pass, refuses_more_than_its_limits) {
  auto device = cpu::make_backend(1);
  auto const p = device->make_pass({4, 2, 1, 3});
  auto const set = [&](std::vector<row_span> const& spans, std::size_t moves) {
    std::vector<row_move> const list(moves);
    device->set_pass(*p, {.spans = spans, .moves = {list, {}}});
  };
  EXPECT_NO_THROW(set({{0, 0, 0, 3}, {1, 0, 3, 1}}, 3));
  EXPECT_THROW(set({{0, 0, 0, 3}, {1, 0, 3, 2}}, 0), qwen38::error);
  EXPECT_THROW(set({{0, 0, 0, 1}, {1, 0, 1, 1}, {2, 0, 2, 1}}, 0), qwen38::error);
  EXPECT_THROW(set({{0, 0, 0, 1}}, 4), qwen38::error);
}

TEST(cpu_embed, reads_bf16_and_f16_rows) {
  auto device = cpu::make_backend(1);
  std::vector<std::uint16_t> table;
  for (std::uint32_t i = 0; i < 6; ++i)
    table.push_back(static_cast<std::uint16_t>(0x3c00 + i * 0x11));
  std::vector<std::int32_t> const ids = {2, 0};
  std::vector<float> y(4);
  auto const rows = std::as_bytes(std::span(table));
  token_list tokens;
  auto const memory = device->make_tokens(2, tokens);
  auto const p = make_pass(*device, pass_rows{.ids = ids});
  device->embed(*device->make_embedding(rows, qpn::dtype::bf16, 2), *p, tokens, view(y, 2));
  EXPECT_EQ(y[0], qpn::decode_bf16(table[4]));
  EXPECT_EQ(y[3], qpn::decode_bf16(table[1]));
  device->embed(*device->make_embedding(rows, qpn::dtype::f16, 2), *p, tokens, view(y, 2));
  EXPECT_EQ(y[1], qpn::decode_f16(table[5]));
  tokens[1] = {1.0F, 2};
  std::vector<std::int32_t> const places = {id_in_place(1), id_in_place(0)};  // the latter has none
  auto const q = make_pass(*device, pass_rows{.ids = places});
  device->embed(*device->make_embedding(rows, qpn::dtype::f16, 2), *q, tokens, view(y, 2));
  EXPECT_EQ(y[1], qpn::decode_f16(table[5]));
  EXPECT_EQ(y[3], qpn::decode_f16(table[1]));
}

}  // namespace

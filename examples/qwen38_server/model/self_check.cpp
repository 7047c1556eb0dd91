// SPDX-License-Identifier: Apache-2.0
#include "model/self_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <qpn/dtype.hpp>
#include <qpn/reference/dequant.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/error.hpp"

namespace qwen38::model {
namespace {

constexpr std::int64_t most_outputs = 64;
constexpr std::int64_t most_rows = 40;
constexpr std::uint32_t seed = 38;

/// A sum in fp64 and what the rounding of the packed route may add to it.
struct bounded_sum {
  double value = 0;
  double bound = 0;
};

/// Published weight rows of a source by their place in the fused matrix.
class published_rows {
 public:
  published_rows(qpn::packed_layout const& layout, std::span<qpn::weight_part const> parts)
      : layout_(layout), parts_(parts) {}

  [[nodiscard]] std::vector<double> row(std::int64_t index) const {
    std::size_t part = 0;
    for (; index >= parts_[part].n; ++part) index -= parts_[part].n;
    std::vector<double> values(static_cast<std::size_t>(layout_.k));
    for (std::int64_t k = 0; k < layout_.k; ++k) {
      values[static_cast<std::size_t>(k)] =
          qpn::reference::weight_at(layout_, parts_[part], index, k);
    }
    return values;
  }

 private:
  qpn::packed_layout const& layout_;
  std::span<qpn::weight_part const> parts_;
};

/// |error| <= 2 k 2^-24 sum |x w| of fp32 sums over exact products, a few roundings of the result,
/// and 2^-33 for each weight of 16 bits that becomes fp16 times 2^8.
bounded_sum sum_of(std::span<double const> w, std::span<float const> x, bool dense) {
  double sum = 0;
  double magnitude = 0;
  double tiny = 0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    double const product = w[k] * static_cast<double>(x[k]);
    sum += product;
    magnitude += std::abs(product);
    tiny += std::abs(static_cast<double>(x[k]));
  }
  double const terms = static_cast<double>(w.size());
  return {sum, 2.0 * terms * 0x1p-24 * magnitude + 0x1p-22 * std::abs(sum) +
                   (dense ? 0x1p-33 * tiny : 0.0)};
}

bounded_sum gated(bounded_sum gate, bounded_sum up, qpn::dtype y_type) {
  double const silu = gate.value / (1.0 + std::exp(-gate.value));
  bounded_sum out;
  out.value = silu * up.value;
  out.bound = 1.2 * gate.bound * (std::abs(up.value) + up.bound) + up.bound * std::abs(silu) +
              0x1p-18 * std::abs(out.value);
  if (y_type != qpn::dtype::f16) return out;
  out.value = std::clamp(out.value, -65504.0, 65504.0);
  out.bound += 0x1p-11 * std::abs(out.value) + 0x1p-25;
  return out;
}

}  // namespace

double check_product(ops::backend& backend, ops::linear const& packed,
                     ops::linear_source const& source) {
  bool const gates = source.use == ops::linear_use::gate_up;
  bool const dense = source.format == qpn::format_id::dense16;
  std::int64_t const columns = gates ? packed.n() / 2 : packed.n();
  std::int64_t const k = packed.k();

  // Multiples of 1/8 up to 2: exact in fp16, as in fp32. They reach the backend as rows of a
  // vocabulary of most_rows ids.
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(most_rows * k));
  std::vector<std::uint16_t> halves;
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() % 33) - 16) / 8;
    halves.push_back(qpn::encode_f16(value));
  }
  auto const table = backend.make_embedding(std::as_bytes(std::span(halves)), qpn::dtype::f16, k);
  // Where products may have more rows than keep their bits, that many, which repeat the others.
  std::int64_t const wide_rows =
      source.most_rows > qpn::gemm_max_m ? qpn::gemm_max_m + 1 : most_rows;
  auto const pass = backend.make_pass({wide_rows, 1, 1, 1});
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < wide_rows; ++row) {
    ids.push_back(static_cast<std::int32_t>(row % most_rows));
  }

  published_rows const published(packed.layout(), source.parts);
  std::int64_t const outputs = std::min(columns, most_outputs);
  std::vector<std::int64_t> wanted;
  for (std::int64_t i = 0; i < outputs; ++i) {
    wanted.push_back(outputs == 1 ? 0 : i * (columns - 1) / (outputs - 1));
  }

  double worst = 0;
  qpn::dtype y_type = qpn::dtype::f32;
  auto const multiply = [&](std::int64_t m) {
    std::vector<float> y(static_cast<std::size_t>(m * columns));
    ops::tensor stream;
    ops::tensor x;
    ops::tensor out;
    auto const of_stream = backend.make_tensor(ops::row_kind::stream, m, k, stream);
    auto const of_x = backend.make_tensor(ops::row_kind::activation, m, k, x);
    auto const of_out = backend.make_tensor(
        gates ? ops::row_kind::activation : ops::row_kind::stream, m, columns, out);
    ops::pass_rows rows;
    rows.ids = std::span(ids).first(static_cast<std::size_t>(m));
    backend.set_pass(*pass, rows);
    backend.embed(*table, *pass, {}, stream);
    backend.copy(stream, x);
    if (gates) {
      backend.gate_up(packed, x, out);
    } else {
      backend.matmul(packed, x, out, false);
    }
    backend.read(out, y);
    y_type = out.type;
    return y;
  };
  std::vector<float> many;  // [wide_rows][columns]
  if (wide_rows > most_rows) many = multiply(wide_rows);
  std::vector<float> widest;  // [most_rows][columns]
  for (std::int64_t const m : {most_rows, std::int64_t{9}, std::int64_t{1}}) {
    std::vector<float> const y = multiply(m);
    if (widest.empty()) {
      widest = y;
    } else if (std::memcmp(widest.data(), y.data(), y.size() * sizeof(float)) != 0) {
      throw error(error_kind::internal, "self-check of " + std::string(source.name) +
                                            ": the rows of " + std::to_string(m) +
                                            " differ from the same rows among " +
                                            std::to_string(most_rows) + ", expected equal bits");
    }
  }
  for (std::int64_t const column : wanted) {
    std::vector<double> const w = published.row(column);
    std::vector<double> const up = gates ? published.row(columns + column) : std::vector<double>();
    for (std::int64_t row = 0; row < most_rows; ++row) {
      std::span<float const> const x =
          std::span(values).subspan(static_cast<std::size_t>(row * k), static_cast<std::size_t>(k));
      bounded_sum expected = sum_of(w, x, dense);
      if (gates) expected = gated(expected, sum_of(up, x, dense), y_type);
      auto const check = [&](std::vector<float> const& y, std::int64_t of_row) {
        double const got =
            static_cast<double>(y[static_cast<std::size_t>(of_row * columns + column)]);
        double const error_part = std::abs(got - expected.value) / expected.bound;
        if (!(error_part <= 1.0) && got != expected.value) {
          throw error(error_kind::internal,
                      "self-check of " + std::string(source.name) + ": output " +
                          std::to_string(column) + " of row " + std::to_string(of_row) + " of " +
                          std::to_string(std::ssize(y) / columns) + " is " + std::to_string(got) +
                          ", expected " + std::to_string(expected.value) + " within " +
                          std::to_string(expected.bound));
        }
        if (got != expected.value) worst = std::max(worst, error_part);
      };
      check(widest, row);
      if (many.empty()) continue;
      for (std::int64_t other = row; other < wide_rows; other += most_rows) check(many, other);
    }
  }
  return worst;
}

}  // namespace qwen38::model

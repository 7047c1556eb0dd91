// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include "simulation.hpp"

namespace qpn::bench::v100 {

namespace {

constexpr model_shape shapes[] = {
    {"gate_up", format_id::nvfp4, dtype::e2m1, 8704, 5120, true},
    {"down", format_id::nvfp4, dtype::e2m1, 5120, 4352, true},
    {"lm_head", format_id::nvfp4, dtype::e2m1, 62080, 5120, true},
    {"in_proj qkvz", format_id::fp8, dtype::e4m3, 4096, 5120, true},
    {"out_proj", format_id::fp8, dtype::e4m3, 5120, 1536, true},
    {"attention qkv", format_id::fp8, dtype::e4m3, 3584, 5120, true},
    {"MTP gate_up", format_id::dense16, dtype::f16, 8704, 5120, false},
    {"MTP gate_up", format_id::dense16, dtype::bf16, 8704, 5120, false},
    {"in_proj b, a", format_id::dense16, dtype::bf16, 24, 5120, false},
};

}  // namespace

bottleneck model_row::busiest() const {
  v100::launch const& work = launch.work;
  auto const warps = static_cast<int>(work.ctas.front().front().turns.size());
  return busiest_beside_dram(work.turn, warps * resident_ctas(work.ctas_per_sm, work.ctas.size()));
}

std::string_view format_name(model_shape const& shape) {
  if (shape.format != format_id::dense16) return to_string(shape.format);
  return shape.code_type == dtype::f16 ? "f16" : "bf16";
}

std::string shape_name(model_shape const& shape) {
  return std::to_string(shape.n) + " x " + std::to_string(shape.k);
}

model_row make_row(sass_table const& table, model_shape const& shape, int m,
                   fitted_constants const& constants, bool l1_serves) {
  own_kernel const& kernel =
      kernel_for(v100_layout(shape.format, shape.code_type, shape.n, shape.k), m);
  model_row row{shape, m, make_own_launch(table, kernel, shape.n, shape.k, m, l1_serves), 0, 0};
  row.us = simulate(row.launch.work, constants);
  row.read_us = simulate(row.launch.read, constants);
  return row;
}

std::vector<model_row> make_rows(sass_table const& table, fitted_constants const& constants,
                                 bool l1_serves) {
  std::vector<model_row> rows;
  for (model_shape const& shape : shapes) {
    for (int const m : {1, 2, 4, 8, 16, 32, 64, 96})
      rows.push_back(make_row(table, shape, m, constants, l1_serves));
  }
  return rows;
}

}  // namespace qpn::bench::v100

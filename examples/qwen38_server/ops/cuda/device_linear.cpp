// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/device_linear.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

constexpr std::int64_t staging_bytes = std::int64_t{16} << 20;

void check(qpn::status const& outcome, std::string_view name) {
  if (outcome.ok()) return;
  std::string message = std::string(name) + ": " + outcome.what;
  if (outcome.row >= 0) {
    message +=
        " (row " + std::to_string(outcome.row) + ", column " + std::to_string(outcome.column) + ")";
  }
  bool const is_data = outcome.code == qpn::status_code::invalid_value;
  throw error(is_data ? error_kind::corrupt_data : error_kind::unsupported, message);
}

/// Where the rows of a source lie in the packed weight: of gates and ups, tiles of 32 take turns.
class row_order {
 public:
  row_order(linear_use use, std::int64_t n) : half_(use == linear_use::gate_up ? n / 2 : 0) {}

  [[nodiscard]] std::int64_t packed(std::int64_t row) const {
    if (half_ == 0) return row;
    std::int64_t const of_half = row % half_;
    return of_half / qpn::tile_n * 2 * qpn::tile_n + row / half_ * qpn::tile_n +
           of_half % qpn::tile_n;
  }
  [[nodiscard]] std::int64_t source(std::int64_t packed) const {
    if (half_ == 0) return packed;
    std::int64_t const tile = packed / qpn::tile_n;
    return tile % 2 * half_ + tile / 2 * qpn::tile_n + packed % qpn::tile_n;
  }
  /// How many of `count` rows from `row` on stay together.
  [[nodiscard]] std::int64_t run(std::int64_t row, std::int64_t count) const {
    if (half_ == 0) return count;
    return std::min(count, qpn::tile_n - row % half_ % qpn::tile_n);
  }

 private:
  std::int64_t half_;
};

/// Packs parts on the device.
class packer {
 public:
  packer(device& owner, qpn::packed_layout const& layout, linear_use use, std::byte* out,
         std::string_view name, scratch_block& staging)
      : owner_(owner),
        layout_(layout),
        order_(use, layout.n),
        out_(out),
        name_(name),
        code_bytes_(qpn::detail::published_row_bytes(layout)),
        scale_bytes_(qpn::detail::block_scale_count(layout)),
        scale_columns_(qpn::detail::scale_columns(layout)),
        unit_(layout.scale == qpn::scale_mode::block ? qpn::scale_block : qpn::tile_n),
        report_(owner, sizeof(qpn::prepack_report), "the report of packing") {
    std::int64_t const bytes = std::max(staging_bytes, unit_ * row_bytes() + 3 * alignment);
    staged_ = staging.at_least<std::byte>(owner, bytes, "the staging of weights");
    staged_rows_ = (bytes - 3 * alignment) / row_bytes() / unit_ * unit_;
  }

  void add(qpn::weight_part const& part) {
    for (std::int64_t first = 0; first < part.n; first += staged_rows_) {
      qpn::weight_part const rows = stage(part, first, std::min(staged_rows_, part.n - first));
      for (std::int64_t at = 0; at < rows.n;) {
        std::int64_t const count = order_.run(next_row_, rows.n - at);
        owner_.prepack(layout_, slice(rows, at, count), order_.packed(next_row_), out_,
                       report_.as<qpn::prepack_report>());
        next_row_ += count;
        at += count;
      }
    }
  }

  /// Throws what was wrong with a weight, if anything was.
  void finish() {
    qpn::prepack_report found;
    owner_.download(&found, {report_.as(), sizeof found}, sizeof found, 1);
    qpn::status outcome = to_status(found, layout_);
    if (outcome.row >= 0) outcome.row = order_.source(outcome.row);
    check(outcome, name_);
  }

 private:
  static constexpr std::int64_t alignment = 256;

  /// The most that a row takes, its part of fp32 scales for a block of rows included.
  [[nodiscard]] std::int64_t row_bytes() const {
    auto const fp32_bytes = scale_columns_ * std::int64_t{sizeof(float)};
    return code_bytes_ + scale_bytes_ +
           std::max<std::int64_t>(sizeof(float), (fp32_bytes - 1) / qpn::scale_block + 1);
  }

  qpn::weight_part stage(qpn::weight_part const& part, std::int64_t first, std::int64_t count) {
    qpn::weight_part rows = part;
    rows.n = count;
    std::byte* to = staged_;
    auto const move = [&](void const* from, std::int64_t bytes) -> void const* {
      if (from == nullptr || bytes == 0) return nullptr;
      std::byte* const at = to;
      owner_.upload(at, static_cast<std::byte const*>(from) + first * bytes,
                    static_cast<std::size_t>(count * bytes));
      to += (count * bytes + alignment - 1) / alignment * alignment;
      return at;
    };
    rows.codes = move(part.codes, code_bytes_);
    rows.block_scales = move(part.block_scales, scale_bytes_);
    rows.channel_scales = static_cast<float const*>(move(part.channel_scales, sizeof(float)));
    if (part.scale_blocks != nullptr) {  // `first` begins a block
      auto const blocks = (count - 1) / qpn::scale_block + 1;
      owner_.upload(to, blocks_from(part, first),
                    static_cast<std::size_t>(blocks * scale_columns_) * sizeof(float));
      rows.scale_blocks = reinterpret_cast<float const*>(to);
    }
    return rows;
  }

  [[nodiscard]] qpn::weight_part slice(qpn::weight_part const& rows, std::int64_t first,
                                       std::int64_t count) const {
    qpn::weight_part part = rows;
    part.n = count;
    auto const move = [first](void const* from, std::int64_t bytes) -> void const* {
      return from == nullptr ? nullptr : static_cast<std::byte const*>(from) + first * bytes;
    };
    part.codes = move(rows.codes, code_bytes_);
    part.block_scales = move(rows.block_scales, scale_bytes_);
    part.channel_scales = static_cast<float const*>(move(rows.channel_scales, sizeof(float)));
    if (rows.scale_blocks != nullptr) part.scale_blocks = blocks_from(rows, first);
    return part;
  }

  /// The scales of the block of 128 rows that a row lies in, and of those behind it.
  [[nodiscard]] float const* blocks_from(qpn::weight_part const& rows, std::int64_t row) const {
    return rows.scale_blocks + row / qpn::scale_block * scale_columns_;
  }

  device& owner_;
  qpn::packed_layout layout_;
  row_order order_;
  std::byte* out_;
  std::string_view name_;
  std::int64_t code_bytes_;
  std::int64_t scale_bytes_;
  std::int64_t scale_columns_;
  std::int64_t unit_;  ///< rows that are staged together, at least
  device_block report_;
  std::byte* staged_ = nullptr;
  std::int64_t staged_rows_ = 0;
  std::int64_t next_row_ = 0;  ///< of the fused source
};

linear_plan make_plan(qpn::packed_layout const& layout, linear_source const& source,
                      qpn::device_info const& info, std::int64_t most_rows, int candidates) {
  qpn::gemm_problem problem;
  problem.max_m = most_rows;
  problem.candidates = candidates;
  bool const gates = source.use == linear_use::gate_up;
  problem.y_type = gates ? qpn::dtype::f16 : qpn::dtype::f32;
  problem.act = gates ? qpn::activation::silu_gate : qpn::activation::none;
  return qpn::visit_format<linear_plan>(source.format, {}, [&](auto format) -> linear_plan {
    qpn::gemm_plan<decltype(format)> plan;
    check(make_gemm_plan(layout, problem, info, plan), source.name);
    return plan;
  });
}

}  // namespace

void shared_workspace::add(linear_plan const& plan) {
  std::visit([this](auto const& of) { needs_.add(of); }, plan);
}

qpn::workspace_view shared_workspace::get(device& owner, linear_plan const& plan) {
  qpn::workspace_view view{memory_.as(), needs_.bytes(), needs_.zero_bytes};
  if (memory_.bytes() < needs_.bytes()) {
    if (memory_.bytes() > 0) {
      owner.wait();
      owner.note_move();
    }
    memory_ = device_block();
    memory_ = device_block(owner, needs_.bytes(), "the workspace of products");
    view.data = memory_.as();
    owner.init_workspace(plan, view);
  }
  return view;
}

device_linear::device_linear(device& owner, linear_source const& source, scratch_block& staging)
    : use_(source.use) {
  std::int64_t n = 0;
  for (qpn::weight_part const& part : source.parts) n += part.n;
  if (use_ == linear_use::gate_up && n % (2 * qpn::tile_n) != 0) {
    throw error(error_kind::unsupported, std::string(source.name) + ": " + std::to_string(n / 2) +
                                             " gates, but a GPU takes a multiple of " +
                                             std::to_string(qpn::tile_n));
  }
  qpn::packed_layout layout;
  check(make_packed_layout(source.format, source.scales, n, source.k, source.dense_type,
                           owner.info(), layout),
        source.name);
  plan_ = make_plan(layout, source, owner.info(), source.most_rows, 0);
  if (use_ == linear_use::head) {
    best_plan_ = make_plan(layout, source, owner.info(), qpn::gemm_max_m, 1);
  }
  memory_ = device_block(owner, static_cast<std::size_t>(layout.total_bytes),
                         "the weight " + std::string(source.name));
  packer pack(owner, layout, use_, memory_.as(), source.name, staging);
  for (qpn::weight_part const& part : source.parts) pack.add(part);
  pack.finish();
  weight_ = {layout, memory_.as()};
}

byte_range device_linear::first_bytes(std::size_t most) const noexcept {
  auto const codes = static_cast<std::size_t>(weight_.layout.codes_offset);
  std::size_t const bytes = static_cast<std::size_t>(weight_.layout.total_bytes) - codes;
  return {weight_.data + codes, std::min(bytes, most) / 16 * 16};
}

void device_linear::add_to(shared_workspace& workspace) const {
  workspace.add(plan_);
  if (best_plan_) workspace.add(*best_plan_);
}

bool device_linear::takes_fragments(std::int64_t rows) const {
  return std::visit(
      [rows](auto const& of) {
        return rows >= 1 && rows <= of.problem.max_m && qpn::takes_fragments(of, rows);
      },
      plan_);
}

void device_linear::multiply(device& owner, shared_workspace& workspace, tensor const& x,
                             tensor const& y, bool accumulate, bool beside,
                             qpn::gemm_census& census) const {
  qpn::dtype const y_type = use_ == linear_use::gate_up ? qpn::dtype::f16 : qpn::dtype::f32;
  if (x.type != qpn::dtype::f16 || y.type != y_type) {
    throw error(error_kind::internal,
                "matrix product: x must be of kind activation, y as the linear's use has it");
  }
  std::int64_t const most = std::visit([](auto const& of) { return of.problem.max_m; }, plan_);
  for (std::int64_t first = 0; first < x.rows; first += most) {
    std::int64_t const rows = std::min(most, x.rows - first);
    tensor const to = y.slice_rows(first, rows);
    qpn::gemm_args args;
    args.m = rows;
    if (x.fragments) {  // so few rows that they are one call
      args.x = x.data;
      args.order = qpn::x_order::fragments;
    } else {
      args.x = x.slice_rows(first, rows).data;
      args.ldx = x.stride;
    }
    args.weight = weight_;
    args.y = to.data;
    args.ldy = to.stride;
    if (accumulate) {
      args.residual = to.data;
      args.residual_type = qpn::dtype::f32;
      args.ld_residual = to.stride;
    }
    args.census = &census;
    // The kernel before wrote no weight: packing was waited for.
    args.overlap_previous = true;
    args.beside_previous = beside && first == 0;
    owner.gemm(plan_, args, workspace.get(owner, plan_));
    if (!args.beside_previous) owner.note_border();
  }
}

void device_linear::choose(device& owner, shared_workspace& workspace, tensor const& x,
                           best_rows const& best, qpn::gemm_census& census) const {
  if (!best_plan_ || x.type != qpn::dtype::f16 || x.rows > qpn::gemm_max_m) {
    throw error(error_kind::internal,
                "best tokens: the linear must be a head, and x at most 96 rows of kind activation");
  }
  qpn::gemm_args args;
  args.m = x.rows;
  args.x = x.data;
  args.ldx = x.stride;
  args.weight = weight_;
  args.candidate_ids = best.ids;
  args.candidate_values = best.values;
  args.first_id = best.first_id;
  args.id_limit = best.end_id;
  args.census = &census;
  owner.gemm(*best_plan_, args, workspace.get(owner, *best_plan_));
}

}  // namespace qwen38::ops::cuda

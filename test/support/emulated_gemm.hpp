// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <qpn/arch/sm70/gemm_params.hpp>
#include <qpn/arch/sm70/gemm_wide_params.hpp>
#include <qpn/arch/sm70/gemv_program.hpp>
#include <qpn/arch/sm80/bf16_operand.hpp>
#include <qpn/arch/sm80/gemm_params.hpp>
#include <qpn/prepack.hpp>
#include <qpn/reference/dequant.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/aligned_bytes.hpp"
#include "support/devices.hpp"
#include "support/emulator/emulator.hpp"
#include "support/published_weight.hpp"
#include "support/random.hpp"

// A GEMM call of the library on the emulator: the plan, the parameters and the lane program are the
// library's own; only the launch is the emulator's.

namespace qpn::test {

/// The lane operations that the program has and the emulator leaves to its user, and a place where
/// mutants change an operation.
class program_lane {
 public:
  explicit program_lane(emulated_lane& lane) : lane_(&lane) {}
  virtual ~program_lane() = default;

  [[nodiscard]] virtual int thread() const { return lane_->thread(); }
  [[nodiscard]] int block() const { return lane_->block(); }
  [[nodiscard]] int row_block() const { return lane_->row_block(); }
  [[nodiscard]] virtual detail::word4 load_stream(detail::word4 const* p) {
    return lane_->load_stream(p);
  }
  [[nodiscard]] virtual std::uint32_t load_stream(std::uint32_t const* p) {
    return lane_->load_stream(p);
  }
  [[nodiscard]] std::uint16_t load_stream(std::uint16_t const* p) { return lane_->load_stream(p); }
  template <class T>
  [[nodiscard]] T load_together(T const* p) {
    return load_stream(p);
  }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    return lane_->load(p);
  }
  [[nodiscard]] virtual std::uint16_t load(std::uint16_t const* p) { return lane_->load(p); }
  [[nodiscard]] virtual detail::word4 load_words(detail::word4 const* p) { return lane_->load(p); }
  template <class T>
  void store(T* p, T value) {
    lane_->store(p, value);
  }
  template <class T>
  [[nodiscard]] T load_volatile(T const* p) {
    return lane_->load_volatile(p);
  }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    return lane_->template shared_load<T>(offset);
  }
  template <class T>
  void shared_store(int offset, T value) {
    lane_->shared_store(offset, value);
  }
  virtual void sync_warp() { lane_->sync_warp(); }
  virtual void sync_pair() { lane_->sync_pair(); }
  virtual void sync_block() { lane_->sync_block(); }
  virtual void fence_device() { lane_->fence_device(); }
  virtual std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t value) {
    return lane_->atomic_add(p, value);
  }
  std::uint64_t atomic_max(std::uint64_t* p, std::uint64_t value) {
    return lane_->atomic_max(p, value);
  }
  [[nodiscard]] virtual bool any(bool condition) { return lane_->any(condition); }
  [[nodiscard]] virtual std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
    return lane_->shuffle_xor(value, mask);
  }
  virtual void mma_m8n8k4(float (&d)[8], std::uint32_t const (&a)[2], std::uint32_t const (&b)[2]) {
    lane_->mma_m8n8k4(d, a, b);
  }
  virtual void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4],
                            std::uint32_t const (&b)[2]) {
    lane_->mma_m16n8k16(d, a, b);
  }
  virtual void mma_m16n8k16_bf16(float (&d)[4], std::uint32_t const (&a)[4],
                                 std::uint32_t const (&b)[2]) {
    lane_->mma_m16n8k16_bf16(d, a, b);
  }
  virtual void allow_next() {}
  virtual void wait_previous() {}
  [[nodiscard]] std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
    return lane_->multiply_half2(a, b);
  }
  [[nodiscard]] std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
    return lane_->multiply_bf16x2(a, b);
  }
  [[nodiscard]] virtual std::uint32_t broadcast_low(std::uint32_t a) {
    return (a & 0xffffu) * 0x10001u;
  }
  [[nodiscard]] virtual std::uint32_t broadcast_high(std::uint32_t a) {
    return (a >> 16) * 0x10001u;
  }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return encode_f16(low) | static_cast<std::uint32_t>(encode_f16(high)) << 16;
  }
  [[nodiscard]] virtual float widen_low(std::uint32_t pair) {
    return decode_f16(static_cast<std::uint16_t>(pair));
  }
  [[nodiscard]] float widen_high(std::uint32_t pair) {
    return decode_f16(static_cast<std::uint16_t>(pair >> 16));
  }
  [[nodiscard]] float fma(float a, float b, float c) { return std::fma(a, b, c); }
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t s) {
    return lane_->byte_permute(a, b, s);
  }
  [[nodiscard]] int keep(int value) { return value; }
  [[nodiscard]] float exp(float x) { return std::exp(x); }

 protected:
  [[nodiscard]] emulated_lane& lane() { return *lane_; }

 private:
  emulated_lane* lane_;
};

[[nodiscard]] inline device_info with_sms(device_info device, int sm_count) {
  device.sm_count = sm_count;
  return device;
}

/// A weight packed for a GPU, and its values.
struct packed_gpu_weight {
  /// For a V100 with so many multiprocessors.
  packed_gpu_weight(published_weight source, int sm_count)
      : packed_gpu_weight(std::move(source), with_sms(volta_v100(), sm_count)) {}
  packed_gpu_weight(published_weight source, device_info const& device)
      : published(std::move(source)), bytes(0) {
    packed_layout const& cpu = published.layout();
    status const made =
        make_packed_layout(cpu.format, cpu.scale, cpu.n, cpu.k, cpu.code_type, device, layout);
    EXPECT_TRUE(made.ok()) << made.what;
    bytes = aligned_bytes(static_cast<std::size_t>(layout.total_bytes));
    std::vector<weight_part> const parts = published.views();
    status const packed = prepack(layout, parts.data(), parts.size(), bytes.data());
    EXPECT_TRUE(packed.ok()) << packed.what;
    values.resize(static_cast<std::size_t>(cpu.n * cpu.k));
    reference::dequant(cpu, parts.data(), parts.size(), values.data());
  }
  [[nodiscard]] packed_weight view() { return {layout, bytes.data()}; }

  published_weight published;
  packed_layout layout;
  aligned_bytes bytes;
  std::vector<double> values;  ///< [n, k], fp32 scales included
};

/// How the emulator runs a call.
struct emulated_call_options {
  std::uint64_t seed = 1;
  cta_order order = cta_order::shuffled;
  int resident = 1;
  /// Makes the lane of a mutant and keeps it (a lane that waits for ever is never unwound); none:
  /// program_lane.
  std::function<program_lane&(emulated_lane&)> make_lane;
  /// Changes the kernel's parameters, for mutants.
  std::function<void(detail::sm70::gemm_params&)> change_params;
  std::function<void(detail::sm70::gemm_wide_params&)> change_wide_params;
  std::function<void(detail::sm80::gemm_params&)> change_mma16_params;
  /// Row tiles of the kernel for many rows, which then runs whatever m is; 0: as qpn::gemm chooses.
  int wide_row_tiles = 0;
};

/// Buffers and results of one emulated call.
struct emulated_call {
  emulation_report report;
  bool weights_read_once = false;  ///< by each row block
  bool x_rows_read = true;         ///< in fragment order: all of the m rows, and nothing beyond
  bool outputs_written_once = false;
  bool workspace_is_zero = false;  ///< the part that must be 0 between launches
};

/// Runs program(lane) on a grid of row_blocks x blocks.
template <class Program>
emulated_call emulate_program(std::int64_t row_blocks, std::int64_t blocks, int threads,
                              int shared_bytes, emulator_memory& memory,
                              emulated_call_options const& options, Program program) {
  emulation_options launch;
  launch.blocks = static_cast<int>(blocks);
  launch.row_blocks = static_cast<int>(row_blocks);
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  launch.seed = options.seed;
  launch.memory = &memory;
  launch.order = options.order;
  launch.resident = options.resident;
  emulated_call call;
  call.report = emulate(launch, [&](emulated_lane& lane) {
    if (options.make_lane) {
      program(options.make_lane(lane));
    } else {
      program_lane plain(lane);
      program(plain);
    }
  });
  return call;
}

/// Runs program(lane, params), which takes the parameters and the shared memory of so many row
/// tiles.
template <class Operand, int RowTiles, class Format, class Program>
emulated_call emulate_kernel(gemm_plan<Format> const& plan, gemm_args const& args,
                             workspace_view workspace, emulator_memory& memory,
                             emulated_call_options const& options, Program program) {
  detail::sm70::gemm_params params =
      detail::sm70::make_gemm_params<Operand, RowTiles>(plan, args, workspace);
  if (options.change_params) options.change_params(params);
  return emulate_program(detail::cut_rows<Format>(plan.layout, args.m).blocks, params.team_runs,
                         detail::sm70::cta_shape<Operand, RowTiles>::threads,
                         detail::sm70::shared_layout<Operand, RowTiles>::bytes, memory, options,
                         [&](program_lane& lane) { program(lane, params); });
}

template <class Operand, int RowTiles, class Format>
emulated_call emulate_wide_kernel(gemm_plan<Format> const& plan, gemm_args const& args,
                                  emulator_memory& memory, emulated_call_options const& options) {
  detail::sm70::gemm_wide_params params =
      detail::sm70::make_gemm_wide_params<Operand, RowTiles>(plan, args);
  if (options.change_wide_params) options.change_wide_params(params);
  return emulate_program(1, detail::sm70::wide_ctas(plan.layout, args.m, RowTiles),
                         detail::sm70::wide_threads, detail::sm70::wide_shared<RowTiles>::bytes,
                         memory, options, [&](program_lane& lane) {
                           detail::sm70::gemm_wide_program<Operand, RowTiles>(lane, params);
                         });
}

template <class Operand, int RowTiles, bool Candidates, int Batches, int Halves,
          x_order Order = x_order::rows, class Format>
emulated_call emulate_mma16_kernel(gemm_plan<Format> const& plan, gemm_args const& args,
                                   workspace_view workspace, emulator_memory& memory,
                                   emulated_call_options const& options) {
  detail::sm80::gemm_params params =
      detail::sm80::make_gemm_params<Operand, RowTiles>(plan, args, workspace, Halves);
  if (options.change_mma16_params) options.change_mma16_params(params);
  return emulate_program(
      detail::row_blocks(args.m, RowTiles), params.ctas, params.split.slices * detail::warp_lanes,
      detail::sm80::shared_layout<RowTiles>::bytes(params.split.slices), memory, options,
      [&](program_lane& lane) {
        detail::sm80::gemm_program<Operand, RowTiles, Candidates, Batches, Halves, Order>(lane,
                                                                                          params);
      });
}

template <class Operand, int RowTiles, class Format>
emulated_call emulate_mma16_kernel(gemm_plan<Format> const& plan, gemm_args const& args,
                                   workspace_view workspace, emulator_memory& memory,
                                   emulated_call_options const& options) {
  using policy = detail::sm80::gemm_policy<Operand, RowTiles>;
  if (plan.problem.candidates != 0) {
    return emulate_mma16_kernel<Operand, RowTiles, true, 1, 2>(plan, args, workspace, memory,
                                                               options);
  }
  detail::sm80::launch_form const form = detail::sm80::form_of<Operand, RowTiles>(plan, args);
  auto const run_form = [&](auto of_halves, auto of_order) {
    constexpr int halves = decltype(of_halves)::value;
    constexpr x_order order = decltype(of_order)::value;
    constexpr detail::sm80::register_choices choices = policy::choices_of(halves);
    if constexpr (policy::batches(choices.values[choices.count - 1], false, halves, order) == 2) {
      if (policy::batches(form.registers, false, halves, order) == 2) {
        return emulate_mma16_kernel<Operand, RowTiles, false, 2, halves, order>(
            plan, args, workspace, memory, options);
      }
    }
    return emulate_mma16_kernel<Operand, RowTiles, false, 1, halves, order>(plan, args, workspace,
                                                                            memory, options);
  };
  return detail::sm80::visit_form<Operand, RowTiles>(form, args.order, run_form);
}

/// Row tiles of the kernel that is emulated: four in the place of kernels over wgmma.
template <class Format>
int emulated_row_tiles(gemm_plan<Format> const& plan, std::int64_t m) {
  int const row_tiles = detail::mma16_row_tiles(choice_of(plan, m).method);
  return row_tiles == 0 ? 4 : row_tiles;
}

template <class Operand, class Format>
emulated_call emulate_mma16(gemm_plan<Format> const& plan, gemm_args const& args,
                            workspace_view workspace, emulator_memory& memory,
                            emulated_call_options const& options) {
  switch (emulated_row_tiles(plan, args.m)) {
    case 1: return emulate_mma16_kernel<Operand, 1>(plan, args, workspace, memory, options);
    case 2: return emulate_mma16_kernel<Operand, 2>(plan, args, workspace, memory, options);
    default: return emulate_mma16_kernel<Operand, 4>(plan, args, workspace, memory, options);
  }
}

/// The kernels of layout sm80_mma16.
template <class Format>
emulated_call emulate_mma16(gemm_plan<Format> const& plan, gemm_args const& args,
                            workspace_view workspace, emulator_memory& memory,
                            emulated_call_options const& options) {
  using detail::sm80::bf16_operand;
  using detail::sm80::weight_operand;
  auto const run = [&](auto operand) {
    return emulate_mma16<decltype(operand)>(plan, args, workspace, memory, options);
  };
  if (plan.problem.x_type == dtype::bf16) {
    if constexpr (Format::id == format_id::fp8) {
      if (plan.layout.scale == scale_mode::block) return run(bf16_operand<fp8, true>{});
    }
    return run(bf16_operand<Format>{});
  }
  if constexpr (Format::id == format_id::nvfp4) {
    return run(weight_operand<nvfp4, dtype::e2m1>{});
  } else if constexpr (Format::id == format_id::fp8) {
    return plan.layout.scale == scale_mode::block ? run(weight_operand<fp8, dtype::e4m3, true>{})
                                                  : run(weight_operand<fp8, dtype::e4m3>{});
  } else {
    return plan.layout.code_type == dtype::f16 ? run(weight_operand<dense16, dtype::f16>{})
                                               : run(weight_operand<dense16, dtype::bf16>{});
  }
}

/// Runs qpn::gemm's kernel for a checked call of one launch on the emulator. Memory regions are
/// registered here: the records as weights that are read once, all else by use.
template <class Format>
emulated_call emulate_gemm(gemm_plan<Format> const& plan, gemm_args const& args,
                           workspace_view workspace, emulated_call_options const& options = {}) {
  using detail::sm70::weight_operand;
  emulated_call call;
  status const checked = detail::check_gemm(plan, args, workspace);
  EXPECT_TRUE(checked.ok()) << checked.what;
  if (!checked.ok() || args.m == 0) return call;
  packed_layout const& layout = plan.layout;
  EXPECT_FALSE(detail::is_sliced(plan.layout, args.m)) << "several launches";
  emulator_memory memory;
  std::byte const* const weight = args.weight.data;
  auto const records = static_cast<std::size_t>(layout.scales_offset - layout.codes_offset);
  memory.add_region("records", weight + layout.codes_offset, records, region_use::weights);
  if (layout.total_bytes > layout.scales_offset) {
    memory.add_region("scales", weight + layout.scales_offset,
                      static_cast<std::size_t>(layout.total_bytes - layout.scales_offset),
                      region_use::data);
  }
  auto const row_bytes = [&](std::int64_t ld, std::int64_t columns, dtype type) {
    return static_cast<std::size_t>(((args.m - 1) * ld + columns) * bits(type) / 8);
  };
  std::int64_t const columns = columns_of_y(plan);
  if (args.order == x_order::rows) {
    memory.add_region("x", args.x, row_bytes(args.ldx, layout.k, plan.problem.x_type),
                      region_use::data);
  } else {  // counted, for rows beyond m lie between the others
    memory.add_region("x", args.x,
                      static_cast<std::size_t>(x_fragments_count(args.m, layout.k)) * 2,
                      region_use::weights);
  }
  bool const in_place = args.residual != nullptr && args.residual == args.y;
  if (args.y != nullptr) {
    memory.add_region("y", args.y, row_bytes(args.ldy, columns, plan.problem.y_type),
                      in_place ? region_use::data | region_use::output : region_use::output);
  }
  if (args.residual != nullptr && !in_place) {
    memory.add_region("residual", args.residual,
                      row_bytes(args.ld_residual, columns, args.residual_type), region_use::data);
  }
  if (args.bias != nullptr) {
    memory.add_region("bias", args.bias, static_cast<std::size_t>(layout.n) * 4, region_use::data);
  }
  auto const list_bytes = static_cast<std::size_t>(args.m * plan.problem.candidates) * 4;
  if (args.candidate_ids != nullptr) {
    memory.add_region("candidate_ids", args.candidate_ids, list_bytes, region_use::output);
  }
  if (args.candidate_values != nullptr) {
    memory.add_region("candidate_values", args.candidate_values, list_bytes, region_use::output);
  }
  auto* const base = static_cast<std::byte*>(workspace.data);
  std::size_t const zero = std::max(plan.workspace_zero_bytes, workspace.zero_bytes);
  memory.add_region("tickets", base, zero, region_use::workspace | region_use::initialised);
  if (plan.workspace_bytes > plan.workspace_zero_bytes) {
    memory.add_region("planes", base + zero, plan.workspace_bytes - plan.workspace_zero_bytes,
                      region_use::workspace);
  }

  int wide = options.wide_row_tiles;
  if (wide == 0 && args.m > gemm_max_m) wide = detail::sm70::wide_row_tiles(plan, args.m);
  auto const run_wide = [&](auto operand) {
    using Operand = decltype(operand);
    call = wide == 8 ? emulate_wide_kernel<Operand, 8>(plan, args, memory, options)
                     : emulate_wide_kernel<Operand, 4>(plan, args, memory, options);
  };
  auto const run_narrow = [&](auto operand) {
    using Operand = decltype(operand);
    auto const emulate_row_tiles = [&](auto row_tiles, auto program) {
      call = emulate_kernel<Operand, decltype(row_tiles)::value>(plan, args, workspace, memory,
                                                                 options, program);
    };
    auto const emulate_tensor_core = [&](auto row_tiles) {
      emulate_row_tiles(row_tiles, [](program_lane& lane, detail::sm70::gemm_params const& params) {
        detail::sm70::gemm_program<Operand, decltype(row_tiles)::value>(lane, params);
      });
    };
    gemm_method const method = route(plan, args.m).method;
    if constexpr (Format::id != format_id::dense16 && !Operand::fp32_scales_along_k) {
      if (method == gemm_method::mt8) return emulate_tensor_core(std::integral_constant<int, 8>{});
      if (method == gemm_method::mt12) {
        return emulate_tensor_core(std::integral_constant<int, 12>{});
      }
    }
    switch (method) {
      case gemm_method::mt1: return emulate_tensor_core(std::integral_constant<int, 1>{});
      case gemm_method::mt2: return emulate_tensor_core(std::integral_constant<int, 2>{});
      case gemm_method::mt4: return emulate_tensor_core(std::integral_constant<int, 4>{});
      default: break;
    }
    if constexpr (!Operand::fp32_scales_along_k) {
      emulate_row_tiles(std::integral_constant<int, 1>{},
                        [&](program_lane& lane, detail::sm70::gemm_params const& params) {
                          switch (args.m) {
                            case 1: return detail::sm70::gemv_program<Operand, 1>(lane, params);
                            case 2: return detail::sm70::gemv_program<Operand, 2>(lane, params);
                            default: return detail::sm70::gemv_program<Operand, 3>(lane, params);
                          }
                        });
    }
  };
  auto const run = [&](auto operand) { wide != 0 ? run_wide(operand) : run_narrow(operand); };
  if (layout.id == layout_id::sm80_mma16) {
    call = emulate_mma16(plan, args, workspace, memory, options);
  } else if constexpr (Format::id == format_id::nvfp4) {
    run(weight_operand<nvfp4, dtype::e2m1>{});
  } else if constexpr (Format::id == format_id::fp8) {
    if (layout.scale == scale_mode::block) {
      run_narrow(detail::sm70::block_scaled_fp8{});
    } else {
      run(weight_operand<fp8, dtype::e4m3>{});
    }
  } else if (layout.code_type == dtype::f16) {
    run(weight_operand<dense16, dtype::f16>{});
  } else {
    run(weight_operand<dense16, dtype::bf16>{});
  }

  detail::row_cut const cut = detail::cut_rows<Format>(layout, args.m);
  // Four warps of a CTA have different rows of more than four row tiles, and load the same weights.
  std::int64_t const loads = cut.row_tiles > 4 ? 4 : 1;
  std::int64_t const passes = layout.id == layout_id::sm80_mma16
                                  ? detail::row_blocks(args.m, emulated_row_tiles(plan, args.m))
                              : wide != 0 ? detail::row_blocks(args.m, wide)
                                          : cut.blocks * loads;
  call.weights_read_once = all_equal(call.report.load_counts("records"), static_cast<int>(passes));
  if (args.order == x_order::fragments) {
    byte_counts const& read = call.report.load_counts("x");
    std::vector<bool> expected(read.size());
    for (std::int64_t i = 0; i < args.m; ++i) {
      for (std::int64_t k = 0; k < layout.k; ++k) {
        std::int64_t const at = 2 * x_fragments_offset(i, k, layout.k);
        expected[static_cast<std::size_t>(at)] = expected[static_cast<std::size_t>(at + 1)] = true;
      }
    }
    for (std::size_t i = 0; i < read.size(); ++i) {
      call.x_rows_read = call.x_rows_read && (read[i] != 0) == expected[i];
    }
  }
  call.outputs_written_once = true;
  if (args.y != nullptr) {
    byte_counts const& written = call.report.write_counts("y");
    std::int64_t const element = bits(plan.problem.y_type) / 8;
    for (std::size_t i = 0; i < written.size(); ++i) {
      bool const inside = static_cast<std::int64_t>(i) / element % args.ldy < columns;
      call.outputs_written_once = call.outputs_written_once && written[i] == (inside ? 1 : 0);
    }
  }
  for (char const* region : {"candidate_ids", "candidate_values"}) {
    bool const given = region == std::string("candidate_ids") ? args.candidate_ids != nullptr
                                                              : args.candidate_values != nullptr;
    call.outputs_written_once =
        call.outputs_written_once && (!given || all_equal(call.report.write_counts(region), 1));
  }
  call.workspace_is_zero = true;
  for (std::size_t i = 0; i < zero; ++i) {
    call.workspace_is_zero = call.workspace_is_zero && base[i] == std::byte{0};
  }
  return call;
}

}  // namespace qpn::test

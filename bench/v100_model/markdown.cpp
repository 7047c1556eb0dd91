// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include "comparisons.hpp"
#include "fit.hpp"
#include "markdown_text.hpp"
#include "report.hpp"
#include "simulation.hpp"

namespace qpn::bench::v100 {

namespace {

std::string signed_percent(double ratio) {
  double const percent = 100 * (ratio - 1);
  std::string text = percent < 0 ? "" : "+";
  return text.append(fixed(percent, 1)).append(" %");
}

std::string constants_section(fitted_constants const& constants) {
  std::string text = "### Constants\n\n" + table_head({"constant", "value", "source"});
  for (constant const& one : published_constants()) text += constant_line(one);
  text +=
      table_line({"ramp and drain of a launch", compact(constants.launch_us) + " us", "fitted"});
  text += table_line({"interference, the exponent p", compact(constants.interference), "fitted"});
  return text;
}

/// Microseconds that our kernels take for the shapes of a timing.
double ours(sass_table const& table, published_timing const& timing,
            fitted_constants const& constants) {
  bool const nvfp4 = is_nvfp4(timing.kernel);
  double us = 0;
  for (predecessor_shape const& shape : timing.shapes) {
    us += make_row(table,
                   {"", nvfp4 ? format_id::nvfp4 : format_id::fp8,
                    nvfp4 ? dtype::e2m1 : dtype::e4m3, shape.n, shape.k, false},
                   timing.m, constants)
              .us;
  }
  return us;
}

std::string errors_section(sass_table const& table, fitted_constants const& constants) {
  std::string text = "### The predecessor: published, and as this model has it\n\n" +
                     table_head({"kernel and shapes", "m", "published us", "modelled us", "error",
                                 "", "ours, modelled us", "published / ours"});
  double worst = 1;
  for (published_timing const& timing : published_timings()) {
    double const us = model_timing(timing, constants);
    double const own = ours(table, timing, constants);
    double const error = us / timing.us;
    if (!timing.in_fit && std::abs(std::log(error)) > std::abs(std::log(worst))) worst = error;
    text += table_line({timing.what, std::to_string(timing.m), fixed(timing.us, 1), fixed(us, 1),
                        signed_percent(error), timing.in_fit ? "fit" : "held out", fixed(own, 1),
                        fixed(timing.us / own, 2)});
  }
  text += "\nRoot mean square error: " +
          fixed(100 * log_error(published_timings(), true, constants), 1) + " % of the fit, " +
          fixed(100 * log_error(published_timings(), false, constants), 1) +
          " % of what was held out, there at most " + signed_percent(worst) + ".\n";
  return text;
}

std::string kernels_section(std::vector<model_row> const& rows, sass_table const& table) {
  std::string text =
      "### Kernels\n\nMachine code of nvcc " + table.compiler +
      "; counts are of one turn of a warp's main loop. The row is that of most m.\n\n" +
      table_head({"kernel", "registers", "spills", "loop bytes", "instructions", "per weight",
                  "ALU", "FMA", "FP16", "conversion", "HMMA", "LSU", "stall cycles",
                  "L1 wavefronts", "bank conflicts", "bytes in flight", "busiest beside memory"});
  for (own_kernel const& kernel : own_kernels()) {
    model_row const* widest = nullptr;  // of its rows the one with most m, in the largest shape
    for (model_row const& row : rows) {
      if (row.launch.kernel != &kernel) continue;
      if (widest == nullptr || row.m > widest->m) widest = &row;
    }
    if (widest == nullptr) continue;
    sass_kernel const& sass = *widest->launch.sass;
    launch const& work = widest->launch.work;
    double const turns = sass["tensor"] / work.turn.hmma;  // in one pass of the loop
    auto const count = [&](char const* key) { return fixed(sass[key], 0); };
    auto const per_turn = [&](char const* key) { return fixed(sass[key] / turns, 0); };
    bottleneck const busiest = widest->busiest();
    text += table_line(
        {kernel.name, count("registers"), count("spills"), count("loop_bytes"),
         per_turn("instructions"), fixed(widest->instructions_per_weight(), 2), per_turn("alu"),
         per_turn("fma"), per_turn("fp16"), per_turn("xu"), per_turn("tensor"), per_turn("lsu"),
         per_turn("stall_cycles"), fixed(work.turn.wavefronts, 0),
         fixed(widest->launch.loop.conflicts + widest->launch.reduction.conflicts, 0),
         fixed(work.bytes_in_flight(), 0),
         std::string(busiest.name) + ", " + fixed(100 * busiest.share_of_dram, 0) + " %"});
  }
  return text;
}

std::string cell_of(std::optional<published_time> const& time) {
  if (!time) return "-";
  return fixed(time->us, 1) +
         (time->note[0] == '\0' ? "" : std::string(" (").append(time->note).append(")"));
}

std::string rows_section(std::vector<model_row> const& rows) {
  std::string text =
      "### Times (modelled, not measured)\n\n" +
      table_head({"weight", "format", "shape", "m", "us", "GB/s", "read us", "us / read", "limit",
                  "balance", "us after the loop", "predecessor us, measured", "peer us, measured"});
  for (model_row const& row : rows) {
    model_shape const& shape = row.shape;
    double const most = time_limit(shape.format, row.m);
    std::string const limit = !shape.has_target    ? "-"
                              : row.ratio() > most ? fixed(most, 2) + " missed"
                                                   : fixed(most, 2);
    text += table_line({shape.what, std::string(format_name(shape)), shape_name(shape),
                        std::to_string(row.m), fixed(row.us, 2), fixed(row.gb_s(), 0),
                        fixed(row.read_us, 2), fixed(row.ratio(), 3), limit,
                        fixed(100 * row.launch.work.balance(), 1) + " %",
                        fixed(row.launch.work.tail_us(), 2),
                        cell_of(predecessor_time(shape.format, shape.n, shape.k, row.m)),
                        cell_of(peer_time(shape.format, shape.n, shape.k, row.m))});
  }
  return text;
}

/// The largest ratio among the rows with a target, with other constants.
std::string sensitivity_section(sass_table const& table, fitted_constants const& constants) {
  std::string text =
      "### If a constant, or what is assumed of L1, were another\n\n" +
      table_head({"constants", "error of the fit", "error held out", "largest us / read, m up to 8",
                  "m = 16", "m = 32", "m = 64", "m = 96"});
  struct variant {
    char const* what;
    fitted_constants constants;
    bool l1_serves = true;
  };
  for (variant const& one :
       {variant{"as fitted", constants},
        variant{"ramp and drain 2 us", {2, constants.interference}},
        variant{"p = 8", {constants.launch_us, 8}}, variant{"p = 4", {constants.launch_us, 4}},
        variant{"weights that four warps load from L2 for each", constants, false}}) {
    std::map<int, double> largest;
    for (model_row const& row : make_rows(table, one.constants, one.l1_serves)) {
      if (!row.shape.has_target) continue;
      double& of_m = largest[std::max(row.m, 8)];
      of_m = std::max(of_m, row.ratio());
    }
    std::vector<std::string> cells = {
        one.what, fixed(100 * log_error(published_timings(), true, one.constants), 1) + " %",
        fixed(100 * log_error(published_timings(), false, one.constants), 1) + " %"};
    for (auto const& [m, ratio] : largest) cells.push_back(fixed(ratio, 3));
    text += table_line(cells);
  }
  return text;
}

std::string limits_section(std::vector<model_row> const& rows) {
  std::string text = "### Limits\n\n";
  std::vector<std::string> const misses = missed_limits(rows);
  if (misses.empty()) return text + "All are kept.\n";
  text += "Missed:\n\n";
  for (std::string const& miss : misses) text += "- " + miss + "\n";
  return text;
}

}  // namespace

std::string markdown_of(std::vector<model_row> const& rows, sass_table const& table,
                        fitted_constants const& constants) {
  return rows_section(rows) + "\n" + limits_section(rows) + "\n" +
         errors_section(table, constants) + "\n" + sensitivity_section(table, constants) + "\n" +
         kernels_section(rows, table) + "\n" + constants_section(constants);
}

}  // namespace qpn::bench::v100

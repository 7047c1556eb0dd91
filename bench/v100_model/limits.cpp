// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "report.hpp"
#include "rows.hpp"
#include "simulation.hpp"

namespace qpn::bench::v100 {

namespace {

constexpr double balance_limit = 0.97;
constexpr double bytes_in_flight_limit = 12 * 1024;

/// Thread-instructions per weight that a kernel's loop may have; 0: no limit.
double instruction_limit(own_kernel const& kernel) {
  bool const nvfp4 = kernel.format == format_id::nvfp4;
  if (!nvfp4 && kernel.format != format_id::fp8) return 0;
  switch (kernel.row_tiles) {
    case 1: return nvfp4 ? 3.2 : 2.8;
    case 2: return nvfp4 ? 4.2 : 3.9;
    case 4: return nvfp4 ? 6.2 : 6.0;
    default: return 0;
  }
}

void judge_kernel(model_row const& row, std::vector<std::string>& misses) {
  own_kernel const& kernel = *row.launch.kernel;
  std::string const name = kernel.name;
  double const limit = instruction_limit(kernel);
  if (limit > 0 && row.instructions_per_weight() > limit) {
    misses.push_back(name + " needs " + fixed(row.instructions_per_weight(), 2) +
                     " instructions per weight, " + fixed(limit, 1) + " are allowed.");
  }
  if (double const spills = (*row.launch.sass)["spills"]; spills > 0) {
    misses.push_back(name + " spills " + fixed(spills, 0) + " bytes, none are allowed.");
  }
  if (double const conflicts = row.launch.loop.conflicts + row.launch.reduction.conflicts;
      conflicts > 0) {
    misses.push_back(name + " has " + fixed(conflicts, 0) +
                     " bank conflicts a turn of its loop and a reduction, none are allowed.");
  }
}

void judge_row(model_row const& row, std::vector<std::string>& misses) {
  std::string const where = std::string(format_name(row.shape)) + " " + shape_name(row.shape) +
                            " at m = " + std::to_string(row.m);
  launch const& work = row.launch.work;
  if (work.bytes_in_flight() < bytes_in_flight_limit) {
    misses.push_back(where + ": " + fixed(work.bytes_in_flight(), 0) +
                     " bytes are on their way to a multiprocessor, 12288 are needed.");
  }
  if (work.balance() < balance_limit) {
    misses.push_back(where + ": the multiprocessors' work is " + fixed(100 * work.balance(), 1) +
                     " % balanced, 97 % are needed.");
  }
  double const limit = time_limit(row.shape.format, row.m);
  if (row.ratio() > limit) {
    bottleneck const busiest = row.busiest();
    misses.push_back(where + ": " + fixed(row.us, 2) + " us are " + fixed(row.ratio(), 3) +
                     " of the modelled read, " + fixed(limit, 2) + " are allowed; " + busiest.name +
                     " is busy for " + fixed(100 * busiest.share_of_dram, 0) +
                     " % of memory's time, and " + fixed(work.tail_us(), 2) +
                     " us pass after the last weight, in which the warps' sums of " +
                     std::to_string(row.launch.kernel->row_tiles) +
                     (row.launch.kernel->row_tiles == 1 ? " row tile" : " row tiles") +
                     " and the planes of several CTAs are added.");
  }
}

}  // namespace

double time_limit(format_id format, int m) {
  bool const nvfp4 = format == format_id::nvfp4;
  return m <= 16 ? 1.11 : m <= 32 ? 1.18 : m <= 64 ? (nvfp4 ? 1.7 : 1.2) : nvfp4 ? 2.5 : 1.45;
}

std::vector<std::string> missed_limits(std::vector<model_row> const& rows) {
  std::vector<std::string> misses;
  std::set<own_kernel const*> judged;
  for (model_row const& row : rows) {
    if (judged.insert(row.launch.kernel).second) judge_kernel(row, misses);
  }
  for (model_row const& row : rows) {
    if (row.shape.has_target) judge_row(row, misses);
  }
  return misses;
}

}  // namespace qpn::bench::v100

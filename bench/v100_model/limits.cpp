// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "report.hpp"
#include "rows.hpp"

namespace qpn::bench::v100 {

namespace {

constexpr double balance_limit = 0.97;
constexpr double bytes_in_flight_limit = 12 * 1024;

/// Thread-instructions per weight that a kernel's loop may have; 0: no limit.
double instruction_limit(own_kernel const& kernel) {
  switch (kernel.format) {
    case format_id::nvfp4: return kernel.row_tiles == 1 ? 3.2 : 4.2;
    case format_id::fp8: return kernel.row_tiles == 1 ? 2.8 : 3.9;
    case format_id::dense16: break;
  }
  return 0;
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
  if (row.ratio() > time_limit) {
    misses.push_back(where + ": " + fixed(row.us, 2) + " us are " + fixed(row.ratio(), 3) +
                     " of the modelled read, " + fixed(time_limit, 2) + " are allowed; " +
                     fixed(work.tail_us(), 2) +
                     " us pass after the last weight, in which 8 warps add " +
                     std::to_string(row.launch.kernel->row_tiles) +
                     (row.launch.kernel->row_tiles == 1 ? " row tile" : " row tiles") +
                     " and the last CTA adds the planes of the others.");
  }
}

}  // namespace

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

// SPDX-License-Identifier: Apache-2.0
#include "cli/numa.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "support/error.hpp"

namespace qwen38::cli {
namespace {

constexpr int most_cpus = 8192;

using cpu_mask = std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)>;

cpu_mask make_mask() {
  cpu_mask made(CPU_ALLOC(most_cpus), [](cpu_set_t* set) { CPU_FREE(set); });
  CPU_ZERO_S(CPU_ALLOC_SIZE(most_cpus), made.get());
  return made;
}

/// Of the calling thread.
std::vector<int> allowed_cpus() {
  auto const mask = make_mask();
  std::vector<int> cpus;
  if (sched_getaffinity(0, CPU_ALLOC_SIZE(most_cpus), mask.get()) != 0) return cpus;
  for (int cpu = 0; cpu < most_cpus; ++cpu) {
    if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(most_cpus), mask.get())) cpus.push_back(cpu);
  }
  return cpus;
}

/// 0, or errno.
int allow_cpus(std::vector<int> const& cpus) {
  auto const mask = make_mask();
  for (int const cpu : cpus) CPU_SET_S(cpu, CPU_ALLOC_SIZE(most_cpus), mask.get());
  return sched_setaffinity(0, CPU_ALLOC_SIZE(most_cpus), mask.get()) == 0 ? 0 : errno;
}

std::optional<std::string> first_line(std::filesystem::path const& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

numa_place nowhere(std::string sentence) {
  numa_place place;
  place.why_not = std::move(sentence);
  return place;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string const& text) {
  std::vector<int> cpus;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::size_t const comma = std::min(rest.find(','), rest.size());
    std::string_view const part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    std::size_t const dash = std::min(part.find('-'), part.size());
    auto const first = number(part.substr(0, dash));
    auto const last = dash < part.size() ? number(part.substr(dash + 1)) : first;
    if (!first || !last || *first < 0 || *last < *first || *last >= most_cpus) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

numa_place find_numa_place(std::string const& pci_id, std::filesystem::path const& sysfs) {
  std::string id = pci_id;
  std::ranges::transform(id, id.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto const file = sysfs / "bus" / "pci" / "devices" / id / "numa_node";
  auto const line = first_line(file);
  if (!line) return nowhere(file.string() + " cannot be read, so the GPU's node is not known");
  auto const node = number(*line);
  if (!node || *node < 0) {
    return nowhere(file.string() + " says " + *line + ", so the GPU belongs to no node");
  }
  auto const list =
      sysfs / "devices" / "system" / "node" / ("node" + std::to_string(*node)) / "cpulist";
  auto const text = first_line(list);
  std::vector<int> cpus = parse_cpu_list(text.value_or(std::string()));
  if (cpus.empty()) return nowhere(list.string() + " names no processors");
  std::vector<int> const allowed = allowed_cpus();
  std::erase_if(cpus, [&](int cpu) { return std::ranges::find(allowed, cpu) == allowed.end(); });
  if (cpus.empty()) {
    return nowhere("this process may run on no processor of the GPU's node " +
                   std::to_string(*node));
  }
  numa_place place;
  place.node = *node;
  place.cpus = std::move(cpus);
  return place;
}

void run_at(numa_place const& place) {
  if (place.node < 0) return;
  if (int const problem = allow_cpus(place.cpus); problem != 0) {
    throw error(error_kind::internal,
                "--numa auto: a thread cannot be kept on node " + std::to_string(place.node) +
                    " (" + std::generic_category().message(problem) + "): expected --numa off");
  }
}

numa_visit::numa_visit(numa_place const& place) {
  if (place.node < 0) return;
  before_ = allowed_cpus();
  run_at(place);
}

numa_visit::~numa_visit() {
  if (!before_.empty()) static_cast<void>(allow_cpus(before_));
}

}  // namespace qwen38::cli

// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/memory.hpp"

#include <stdexcept>
#include <utility>

#include "support/emulator/report.hpp"

namespace qpn::test {
namespace {

bool possible(region_use use) {
  bool const initialised = has(use, region_use::initialised);
  switch (static_cast<unsigned>(use) & ~static_cast<unsigned>(region_use::initialised)) {
    case static_cast<unsigned>(region_use::weights):
    case static_cast<unsigned>(region_use::data):
    case static_cast<unsigned>(region_use::output):
    case static_cast<unsigned>(region_use::data | region_use::output): return !initialised;
    case static_cast<unsigned>(region_use::workspace): return true;
    default: return false;
  }
}

}  // namespace

void emulator_memory::add_region(std::string name, void const* pointer, std::size_t bytes,
                                 region_use use) {
  auto const begin = reinterpret_cast<std::uintptr_t>(pointer);
  if (pointer == nullptr || bytes == 0) {
    throw std::invalid_argument(sentence("region '", name, "' has no bytes"));
  }
  if (!possible(use)) throw std::invalid_argument(sentence("region '", name, "' mixes uses"));
  for (memory_region const& other : regions_) {
    if (other.name == name) throw std::invalid_argument(sentence("region '", name, "' twice"));
    if (begin < other.begin + other.bytes && other.begin < begin + bytes) {
      throw std::invalid_argument(sentence("region '", name, "' overlaps '", other.name, "'"));
    }
  }
  memory_region region{std::move(name), begin, bytes, use, {}};
  if (has(use, region_use::workspace)) {
    region.initialised.assign(bytes, has(use, region_use::initialised) ? 1 : 0);
  }
  regions_.push_back(std::move(region));
}

}  // namespace qpn::test

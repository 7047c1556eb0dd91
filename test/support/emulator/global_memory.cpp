// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/global_memory.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace qpn::test {
namespace {

void count(byte_counts& counts, std::size_t offset, std::size_t size) {
  for (std::size_t i = offset; i < offset + size; ++i) {
    if (counts[i] != 255) ++counts[i];
  }
}

}  // namespace

global_memory::global_memory(emulator_memory& memory, int blocks, int threads,
                             emulation_report& report)
    : report_(report), order_(blocks, threads) {
  for (memory_region& region : memory.regions()) {
    region_notes notes;
    notes.region = &region;
    if (has(region.use, region_use::workspace)) notes.notes.resize(region.bytes);
    if (has(region.use, region_use::weights)) {
      notes.loads = &(report.loads[region.name] = byte_counts(region.bytes));
    }
    if (has(region.use, region_use::output)) {
      notes.writes = &(report.writes[region.name] = byte_counts(region.bytes));
    }
    regions_.push_back(std::move(notes));
  }
}

void global_memory::load(lane_moment const& at, void const* address, void* value, std::size_t size,
                         load_kind kind) {
  access const wanted{at, "load", reinterpret_cast<std::uintptr_t>(address), size};
  std::memset(value, 0, size);
  region_notes* const found = find(wanted);
  if (found == nullptr) return;
  std::size_t const offset = wanted.address - found->region->begin;
  region_use const use = found->region->use;
  char const* fault = nullptr;
  if (has(use, region_use::workspace)) {
    fault = workspace_fault(wanted, *found, true,
                            [&](note const& last) { return load_fault(wanted, last, kind); });
  } else if (use == region_use::output) {
    fault = "is write only";
  } else if (found->writes != nullptr) {
    auto const first = found->writes->begin() + static_cast<std::ptrdiff_t>(offset);
    bool const written =
        std::any_of(first, first + static_cast<std::ptrdiff_t>(size), [](int n) { return n != 0; });
    if (written) fault = "was written in this launch";
  }
  if (fault != nullptr) report_use(wanted, *found, fault);
  if (use == region_use::output) return;
  if (found->loads != nullptr) count(*found->loads, offset, size);
  std::memcpy(value, address, size);
}

void global_memory::store(lane_moment const& at, void* address, void const* value,
                          std::size_t size) {
  access const wanted{at, "store", reinterpret_cast<std::uintptr_t>(address), size};
  region_notes* const found = find(wanted);
  if (found == nullptr) return;
  std::size_t const offset = wanted.address - found->region->begin;
  if (has(found->region->use, region_use::workspace)) {
    char const* const fault = workspace_fault(
        wanted, *found, false, [&](note const& last) { return store_fault(wanted, last); });
    if (fault != nullptr) report_use(wanted, *found, fault);
    note_store(wanted, *found, false);
  } else if (found->writes != nullptr) {
    count(*found->writes, offset, size);
  } else {
    report_use(wanted, *found, "is read only");
    return;
  }
  std::memcpy(address, value, size);
}

std::uint32_t global_memory::atomic_add(lane_moment const& at, std::uint32_t* address,
                                        std::uint32_t value) {
  return atomic(at, "atomic_add", address, [value](std::uint32_t old) { return old + value; });
}

std::uint64_t global_memory::atomic_max(lane_moment const& at, std::uint64_t* address,
                                        std::uint64_t value) {
  return atomic(at, "atomic_max", address,
                [value](std::uint64_t old) { return (std::max)(old, value); });
}

template <class Word, class Change>
Word global_memory::atomic(lane_moment const& at, char const* what, Word* address, Change change) {
  access const wanted{at, what, reinterpret_cast<std::uintptr_t>(address), sizeof(Word)};
  region_notes* const found = find(wanted);
  if (found == nullptr) return 0;
  if (!has(found->region->use, region_use::workspace)) {
    report_use(wanted, *found, "takes no atomics, it is no workspace");
    return 0;
  }
  order_.atomic(at, wanted.address);
  char const* const fault = workspace_fault(wanted, *found, true, [&](note const& last) {
    return load_fault(wanted, last, load_kind::not_from_l1);
  });
  if (fault != nullptr) report_use(wanted, *found, fault);
  Word old = 0;
  std::memcpy(&old, address, sizeof(Word));
  Word const changed = change(old);
  std::memcpy(address, &changed, sizeof(Word));
  note_store(wanted, *found, true);
  return old;
}

template <class FaultOfNote>
char const* global_memory::workspace_fault(access const& wanted, region_notes const& found,
                                           bool reads, FaultOfNote fault_of) const {
  std::size_t const offset = wanted.address - found.region->begin;
  note const* checked = nullptr;
  for (std::size_t i = offset; i < offset + wanted.size; ++i) {
    if (reads && found.region->initialised[i] == 0) return "was never initialised";
    note const& last = found.notes[i];
    if (!last.stored || (checked != nullptr && *checked == last)) continue;
    checked = &last;
    if (char const* const fault = fault_of(last)) return fault;
  }
  return nullptr;
}

char const* global_memory::load_fault(access const& wanted, note const& last,
                                      load_kind kind) const {
  if (last.by.block == wanted.at.block) {
    bool const fresh = last.atomic && kind == load_kind::not_from_l1;
    return fresh ? nullptr : store_fault(wanted, last);
  }
  char const* const fault = last.atomic ? nullptr : other_block_fault(wanted, last);
  if (fault != nullptr || kind == load_kind::not_from_l1) return fault;
  return "was written by another block, so that L1 may be stale: load_volatile is wanted";
}

char const* global_memory::store_fault(access const& wanted, note const& last) const {
  if (last.by.block != wanted.at.block) {
    return last.atomic ? nullptr : other_block_fault(wanted, last);
  }
  return wanted.at.is_after(last.by.thread, last.time)
             ? nullptr
             : "was written by another thread of the block with no barrier in between";
}

char const* global_memory::other_block_fault(access const& wanted, note const& last) const {
  if (!order_.fenced(last.by)) {
    return "is unfenced: the thread of another block that stored it called no fence_device since";
  }
  return order_.is_before(last.by, wanted.at)
             ? nullptr
             : "was written by another block in no certain order: between the store and here a "
               "barrier or an atomic is missing, or the fence comes after them";
}

void global_memory::note_store(access const& wanted, region_notes& found, bool atomic) {
  note const made{
      true, atomic, wanted.at.now, {wanted.at.block, wanted.at.thread, order_.fences(wanted.at)}};
  std::size_t const offset = wanted.address - found.region->begin;
  for (std::size_t i = offset; i < offset + wanted.size; ++i) {
    found.notes[i] = made;
    found.region->initialised[i] = 1;
  }
}

global_memory::region_notes* global_memory::find(access const& wanted) {
  auto const holds = [&](region_notes const& notes) {
    std::uintptr_t const begin = notes.region->begin;
    std::size_t const bytes = notes.region->bytes;
    return wanted.address >= begin && wanted.size <= bytes &&
           wanted.address - begin <= bytes - wanted.size;
  };
  if (last_found_ >= regions_.size() || !holds(regions_[last_found_])) {
    last_found_ = static_cast<std::size_t>(std::find_if(regions_.begin(), regions_.end(), holds) -
                                           regions_.begin());
  }
  if (last_found_ < regions_.size() && wanted.address % wanted.size == 0) {
    return &regions_[last_found_];
  }
  report_lost(wanted);
  return nullptr;
}

global_memory::region_notes const* global_memory::nearest(access const& wanted) const {
  region_notes const* best = nullptr;
  std::uintptr_t least = (std::numeric_limits<std::uintptr_t>::max)();
  for (region_notes const& notes : regions_) {
    std::uintptr_t const begin = notes.region->begin;
    std::uintptr_t const end = begin + notes.region->bytes;
    std::uintptr_t away = 0;
    if (wanted.address < begin) away = begin - wanted.address;
    if (wanted.address >= end) away = wanted.address - end + 1;
    if (away < least) {
      least = away;
      best = &notes;
    }
  }
  return best;
}

void global_memory::report_lost(access const& wanted) {
  report_.add_error([&] {
    std::string const who = sentence("block ", wanted.at.block, ", thread ", wanted.at.thread, ": ",
                                     wanted.what, " of ", wanted.size, " bytes ");
    region_notes const* const region = nearest(wanted);
    if (region == nullptr) return who + "outside all regions: there are none";
    auto const offset = static_cast<std::int64_t>(wanted.address - region->region->begin);
    bool const misaligned = last_found_ < regions_.size();
    return sentence(who, "at byte ", offset, " of region '", region->region->name, "' is ",
                    misaligned ? "misaligned" : "out of bounds, the region has ",
                    misaligned ? std::string() : sentence(region->region->bytes, " bytes"));
  });
}

void global_memory::report_use(access const& wanted, region_notes const& found, char const* why) {
  report_.add_error([&] {
    return sentence("block ", wanted.at.block, ", thread ", wanted.at.thread, ": ", wanted.what,
                    " of ", wanted.size, " bytes at byte ", wanted.address - found.region->begin,
                    " of region '", found.region->name, "', which ", why);
  });
}

}  // namespace qpn::test

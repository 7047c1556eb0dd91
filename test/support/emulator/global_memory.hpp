// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/emulator/block_order.hpp"
#include "support/emulator/memory.hpp"
#include "support/emulator/moment.hpp"
#include "support/emulator/report.hpp"

namespace qpn::test {

enum class load_kind { plain, stream, not_from_l1 };

/// The global memory of one launch: the regions, and notes of who stored what in a workspace.
///
/// A store in a workspace reaches other CTAs once the storing thread has passed a fence; a fence of
/// another thread of its CTA does not do. A load by another CTA must be load_kind::not_from_l1,
/// since a plain one may find an old line, and it must come after the store in every schedule, by
/// way of atomics: see block_order. Within a CTA a barrier must lie between a store and another
/// thread's access, as in shared memory. Atomics reach everybody at once. A plain store over what
/// another CTA has only read is not looked at.
class global_memory {
 public:
  /// `report` gets the counts of the regions from the start.
  global_memory(emulator_memory& memory, int blocks, int threads, emulation_report& report);

  /// Copies `size` bytes out; they are zero where the access is no good.
  void load(lane_moment const& at, void const* address, void* value, std::size_t size,
            load_kind kind);

  /// Copies `size` bytes in; the store is left out where the access is no good.
  void store(lane_moment const& at, void* address, void const* value, std::size_t size);

  /// Return the old value, or 0 where the access is no good.
  std::uint32_t atomic_add(lane_moment const& at, std::uint32_t* address, std::uint32_t value);
  std::uint64_t atomic_max(lane_moment const& at, std::uint64_t* address, std::uint64_t value);

  /// Hands the stores of the thread so far to the other CTAs.
  void fence(lane_moment const& at) { order_.fence(at); }

 private:
  /// The last store to a byte of a workspace in this launch.
  struct note {
    bool stored = false;
    bool atomic = false;
    std::uint32_t time = 0;  ///< Of the writer's CTA.
    remote_store by;
    friend bool operator==(note const&, note const&) = default;
  };
  struct region_notes {
    memory_region* region = nullptr;
    std::vector<note> notes;        // workspace
    byte_counts* loads = nullptr;   // weights
    byte_counts* writes = nullptr;  // output
  };
  struct access {
    lane_moment const& at;
    char const* what;
    std::uintptr_t address;
    std::size_t size;
  };

  [[nodiscard]] region_notes* find(access const& wanted);
  [[nodiscard]] region_notes const* nearest(access const& wanted) const;
  void report_lost(access const& wanted);
  void report_use(access const& wanted, region_notes const& found, char const* why);
  /// What is wrong with an access to a workspace, or null.
  template <class FaultOfNote>
  [[nodiscard]] char const* workspace_fault(access const& wanted, region_notes const& found,
                                            bool reads, FaultOfNote fault_of) const;
  [[nodiscard]] char const* load_fault(access const& wanted, note const& last,
                                       load_kind kind) const;
  [[nodiscard]] char const* store_fault(access const& wanted, note const& last) const;
  [[nodiscard]] char const* other_block_fault(access const& wanted, note const& last) const;
  void note_store(access const& wanted, region_notes& found, bool atomic);
  template <class Word, class Change>
  Word atomic(lane_moment const& at, char const* what, Word* address, Change change);

  emulation_report& report_;
  std::vector<region_notes> regions_;
  std::size_t last_found_ = 0;
  block_order order_;
};

}  // namespace qpn::test

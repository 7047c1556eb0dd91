// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/shared_memory.hpp"

#include <cstring>

namespace qpn::test {

shared_memory::shared_memory(int bytes, emulation_report& report)
    : report_(report),
      bytes_(static_cast<std::size_t>(bytes)),
      notes_(static_cast<std::size_t>(bytes)) {}

void shared_memory::keep_readers(int warps) {
  if (warps_ != 0) return;
  warps_ = warps;
  warp_reads_.assign((bytes_.size() + 15) / 16 * static_cast<std::size_t>(warps), 0);
}

int shared_memory::later_reader(lane_moment const& at, int offset) const {
  for (int warp = 0; warp < warps_; ++warp) {
    std::uint32_t const read = warp_reads_[static_cast<std::size_t>(offset / 16 * warps_ + warp)];
    if (read == 0) continue;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      int const thread = warp * warp_lanes + lane;
      if (thread != at.thread && !at.is_after(thread, read)) return thread;
    }
  }
  return -1;
}

void shared_memory::load(lane_moment const& at, int offset, void* value, int size) {
  if (!usable(at, "load", offset, size)) {
    std::memset(value, 0, static_cast<std::size_t>(size));
    return;
  }
  std::memcpy(value, bytes_.data() + offset, static_cast<std::size_t>(size));
  if (warps_ != 0) {
    warp_reads_[static_cast<std::size_t>(offset / 16 * warps_ + at.thread / warp_lanes)] = at.now;
  }
  // One sentence for an access: its bytes mostly share their fault.
  int unwritten = -1;
  int raced = -1;
  note* const notes = notes_.data() + offset;
  for (int i = 0; i < size; ++i) {
    note& byte = notes[i];
    if (byte.written == 0) {
      unwritten = unwritten < 0 ? i : unwritten;
    } else if (!at.is_after(byte.writer, byte.written)) {
      raced = raced < 0 ? i : raced;
    }
    if (byte.read < at.block_start) {
      byte.several_readers = false;
      byte.several_warps = false;
    } else if (!at.same_warp(byte.reader)) {
      byte.several_warps = true;
    } else if (byte.read < at.warp_start) {
      byte.several_readers = false;
    } else if (byte.reader != at.thread) {
      byte.several_readers = true;
    }
    byte.read = at.now;
    byte.reader = static_cast<std::int16_t>(at.thread);
  }
  if (unwritten >= 0) {
    report_.add_error([&] {
      return sentence("block ", at.block, ", thread ", at.thread, " reads byte ",
                      offset + unwritten, " of shared memory, which was never written");
    });
  }
  if (raced >= 0) report_race(at, "reads", offset + raced, "wrote", notes[raced].writer);
}

void shared_memory::store(lane_moment const& at, int offset, void const* value, int size) {
  if (!usable(at, "store", offset, size)) return;
  std::memcpy(bytes_.data() + offset, value, static_cast<std::size_t>(size));
  bool reported = false;
  note* const notes = notes_.data() + offset;
  for (int i = 0; i < size; ++i) {
    note& byte = notes[i];
    if (!reported && byte.written != 0 && !at.is_after(byte.writer, byte.written)) {
      report_race(at, "writes", offset + i, "wrote", byte.writer);
      reported = true;
    }
    if (!reported && at.known != nullptr) {
      int const reader = i % 16 == 0 ? later_reader(at, offset + i) : -1;
      if (reader >= 0) {
        report_race(at, "writes", offset + i, "read", reader);
        reported = true;
      }
    } else if (!reported && byte.read >= at.block_start) {
      bool const same_warp = at.same_warp(byte.reader);
      bool const raced =
          byte.several_warps || !same_warp ||
          (byte.read >= at.warp_start && (byte.several_readers || byte.reader != at.thread));
      if (raced) {
        report_race(at, "writes", offset + i, "read", byte.reader);
        reported = true;
      }
    }
    byte.written = at.now;
    byte.writer = static_cast<std::int16_t>(at.thread);
  }
}

bool shared_memory::usable(lane_moment const& at, char const* what, int offset, int size) {
  bool const inside = offset >= 0 && offset <= static_cast<int>(bytes_.size()) - size;
  if (inside && offset % size == 0) return true;
  report_.add_error([&] {
    return sentence(
        "block ", at.block, ", thread ", at.thread, ": ", what, " of ", size, " bytes at byte ",
        offset, " of shared memory is ",
        inside ? "misaligned" : sentence("out of bounds, it has ", bytes_.size(), " bytes"));
  });
  return false;
}

void shared_memory::report_race(lane_moment const& at, char const* does, int offset,
                                char const* did, int other) {
  report_.add_error([&] {
    std::string const others =
        other == at.thread ? std::string("other threads") : sentence("thread ", other);
    return sentence("block ", at.block, ", thread ", at.thread, " ", does, " byte ", offset,
                    " of shared memory, which ", others, " ", did, " with no barrier in between");
  });
}

}  // namespace qpn::test

// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/shared_memory.hpp"

#include <cstring>

namespace qpn::test {

shared_memory::shared_memory(int bytes, emulation_report& report)
    : report_(report),
      bytes_(static_cast<std::size_t>(bytes)),
      notes_(static_cast<std::size_t>(bytes)) {}

void shared_memory::load(lane_moment const& at, int offset, void* value, int size) {
  if (!usable(at, "load", offset, size)) {
    std::memset(value, 0, static_cast<std::size_t>(size));
    return;
  }
  std::memcpy(value, bytes_.data() + offset, static_cast<std::size_t>(size));
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
      byte.several_pairs = false;
    } else if (!at.same_pair(byte.reader)) {
      byte.several_pairs = true;
    } else if (byte.read < at.pair_start) {
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
    if (!reported && byte.read >= at.block_start) {
      bool const in_warp =
          byte.read >= at.warp_start && (byte.several_readers || byte.reader != at.thread);
      bool const in_pair = byte.read >= at.pair_start &&
                           (byte.several_warps || !at.same_warp(byte.reader) || in_warp);
      bool const raced = byte.several_pairs || !at.same_pair(byte.reader) || in_pair;
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
  auto const name = [](int thread) {
    return thread < first_peer_thread
               ? sentence("thread ", thread)
               : sentence("thread ", thread - first_peer_thread, " of another CTA");
  };
  report_.add_error([&] {
    std::string const others = other == at.thread ? std::string("other threads") : name(other);
    return sentence("block ", at.block, ", ", name(at.thread), " ", does, " byte ", offset,
                    " of shared memory, which ", others, " ", did, " with no barrier in between");
  });
}

}  // namespace qpn::test

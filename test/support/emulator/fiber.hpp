// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "support/emulator/machine_context.hpp"
#include "support/emulator/sanitizer.hpp"

namespace qpn::test {

/// 64 KiB for frames, with an unmapped page below that ends the process when they are too small.
class fiber_stack {
 public:
  fiber_stack();  ///< Throws std::bad_alloc where nothing can be mapped.
  ~fiber_stack();
  fiber_stack(fiber_stack const&) = delete;
  fiber_stack& operator=(fiber_stack const&) = delete;

  static constexpr std::size_t bytes = 64 * 1024;
  [[nodiscard]] std::byte* bottom() const { return bottom_; }

 private:
  std::size_t guard_bytes_;
  std::byte* bottom_;
};

/// A computation on a stack of its own that runs while it is resumed and stands still where it
/// suspends. It stays on the thread that made it.
class fiber {
 public:
  /// `colour` shifts the first frame, so that equal frames of many fibers do not compete for the
  /// same sets of the caches.
  explicit fiber(std::size_t colour);

  /// A body that has not returned is dropped where it stands: its destructors do not run.
  ~fiber();

  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;

  /// Gives an idle fiber its next body, which must not throw; it begins at the next resume().
  void start(std::function<void()> body);

  /// Returns when the body suspends or has returned. Not to be called by the body.
  void resume();

  /// For the body: back to who resumed it.
  void suspend();

  /// It has no body, or its body has returned.
  [[nodiscard]] bool idle() const { return idle_; }

 private:
  static void enter(void* self);

  fiber_stack stack_;
  machine_context own_;
  machine_context caller_;
  sanitized_stack own_notes_;
  sanitized_stack caller_notes_;
  std::function<void()> body_;
  bool idle_ = true;
};

/// Fibers for reuse: to map a stack takes longer than most bodies run.
class fiber_pool {
 public:
  [[nodiscard]] std::unique_ptr<fiber> take();

  /// Keeps an idle fiber and drops any other.
  void give_back(std::unique_ptr<fiber> used);

 private:
  std::vector<std::unique_ptr<fiber>> idle_;
  std::size_t made_ = 0;
};

/// The pool of the calling thread.
[[nodiscard]] fiber_pool& local_fibers();

}  // namespace qpn::test

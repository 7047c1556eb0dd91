// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(QPN_EMULATOR_UCONTEXT)
#define QPN_EMULATOR_UCONTEXT 1
#endif
#if defined(QPN_EMULATOR_UCONTEXT)
#include <ucontext.h>
#endif

namespace qpn::test {

/// Where a computation stands still: its stack and the registers that a function keeps for its
/// caller. By hand on x86-64, where a switch takes a few ns; elsewhere, or where
/// QPN_EMULATOR_UCONTEXT is defined, by ucontext, which makes a system call each time.
class machine_context {
 public:
  machine_context() = default;

  /// A computation that will call entry(argument), which must not return, on the given stack.
  machine_context(void* bottom, std::size_t bytes, void (*entry)(void*), void* argument);

  machine_context(machine_context const&) = delete;
  machine_context& operator=(machine_context const&) = delete;

  /// Makes *this the computation that calls, and goes on with `to`. Returns when somebody switches
  /// to *this.
  void switch_to(machine_context& to);

 private:
#if defined(QPN_EMULATOR_UCONTEXT)
  ucontext_t registers_ = {};
#else
  void* stack_pointer_ = nullptr;
#endif
};

}  // namespace qpn::test

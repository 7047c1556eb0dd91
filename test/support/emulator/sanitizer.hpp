// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// Sanitizers keep notes about the stack that they believe to be in use; they must be told when
// another one takes over. Without a sanitizer these functions are empty.

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QPN_EMULATOR_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define QPN_EMULATOR_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define QPN_EMULATOR_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define QPN_EMULATOR_TSAN 1
#endif

#if defined(QPN_EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(QPN_EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace qpn::test {

/// What the sanitizers know of one stack.
struct sanitized_stack {
  void const* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake_stack = nullptr;    // ASan's copies of frames, while the stack is left
  void* thread_state = nullptr;  // TSan's
};

/// To call right before `from` is left for `to`.
inline void before_switch([[maybe_unused]] sanitized_stack& from,
                          [[maybe_unused]] sanitized_stack const& to) {
#if defined(QPN_EMULATOR_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
#if defined(QPN_EMULATOR_TSAN)
  __tsan_switch_to_fiber(to.thread_state, 0);
#endif
}

/// To call first thing on `now`; fills in where the stack that was left, `before`, lies.
inline void after_switch([[maybe_unused]] sanitized_stack const& now,
                         [[maybe_unused]] sanitized_stack& before) {
#if defined(QPN_EMULATOR_ASAN)
  __sanitizer_finish_switch_fiber(now.fake_stack, &before.bottom, &before.bytes);
#endif
}

/// Makes `stack` the notes of the stack that is in use.
inline void note_current_stack([[maybe_unused]] sanitized_stack& stack) {
#if defined(QPN_EMULATOR_TSAN)
  stack.thread_state = __tsan_get_current_fiber();
#endif
}

inline void note_new_stack(sanitized_stack& stack, void const* bottom, std::size_t bytes) {
  stack.bottom = bottom;
  stack.bytes = bytes;
#if defined(QPN_EMULATOR_TSAN)
  stack.thread_state = __tsan_create_fiber(0);
#endif
}

/// Before the memory of `stack` is given back: frames that never returned have left red zones in
/// it.
inline void forget_stack([[maybe_unused]] sanitized_stack const& stack) {
#if defined(QPN_EMULATOR_ASAN)
  __asan_unpoison_memory_region(stack.bottom, stack.bytes);
#endif
#if defined(QPN_EMULATOR_TSAN)
  __tsan_destroy_fiber(stack.thread_state);
#endif
}

}  // namespace qpn::test

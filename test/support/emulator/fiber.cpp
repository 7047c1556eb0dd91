// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace qpn::test {

fiber_stack::fiber_stack() : guard_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
  void* const mapping = mmap(nullptr, guard_bytes_ + bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(mapping, guard_bytes_, PROT_NONE) != 0) {
    munmap(mapping, guard_bytes_ + bytes);
    throw std::bad_alloc();
  }
  bottom_ = static_cast<std::byte*>(mapping) + guard_bytes_;
}

fiber_stack::~fiber_stack() {
  munmap(bottom_ - guard_bytes_, guard_bytes_ + bytes);
}

fiber::fiber(std::size_t colour)
    : own_(stack_.bottom(), fiber_stack::bytes - colour % 16 * 256, &fiber::enter, this) {
  note_new_stack(own_notes_, stack_.bottom(), fiber_stack::bytes);
}

fiber::~fiber() {
  forget_stack(own_notes_);
}

void fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  idle_ = false;
}

void fiber::resume() {
  note_current_stack(caller_notes_);
  before_switch(caller_notes_, own_notes_);
  caller_.switch_to(own_);
  sanitized_stack left;
  after_switch(caller_notes_, left);
}

void fiber::suspend() {
  before_switch(own_notes_, caller_notes_);
  own_.switch_to(caller_);
  after_switch(own_notes_, caller_notes_);
}

void fiber::enter(void* self) {
  auto& running = *static_cast<fiber*>(self);
  after_switch(running.own_notes_, running.caller_notes_);
  for (;;) {
    running.body_();
    running.idle_ = true;
    running.suspend();
  }
}

std::unique_ptr<fiber> fiber_pool::take() {
  if (idle_.empty()) return std::make_unique<fiber>(made_++);
  std::unique_ptr<fiber> taken = std::move(idle_.back());
  idle_.pop_back();
  return taken;
}

void fiber_pool::give_back(std::unique_ptr<fiber> used) {
  if (used->idle()) idle_.push_back(std::move(used));
}

fiber_pool& local_fibers() {
  thread_local fiber_pool pool;
  return pool;
}

}  // namespace qpn::test

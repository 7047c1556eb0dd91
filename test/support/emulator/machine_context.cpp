// SPDX-License-Identifier: Apache-2.0
#include "support/emulator/machine_context.hpp"

#include <cstdint>

#if defined(QPN_EMULATOR_UCONTEXT)

namespace qpn::test {
namespace {

// makecontext passes nothing but ints.
void begin(unsigned entry_high, unsigned entry_low, unsigned argument_high, unsigned argument_low) {
  auto const joined = [](unsigned high, unsigned low) {
    return static_cast<std::uintptr_t>(static_cast<std::uint64_t>(high) << 32 | low);
  };
  auto* const entry = reinterpret_cast<void (*)(void*)>(joined(entry_high, entry_low));
  entry(reinterpret_cast<void*>(joined(argument_high, argument_low)));
}

}  // namespace

machine_context::machine_context(void* bottom, std::size_t bytes, void (*entry)(void*),
                                 void* argument) {
  getcontext(&registers_);
  registers_.uc_stack.ss_sp = bottom;
  registers_.uc_stack.ss_size = bytes;
  registers_.uc_link = nullptr;
  std::uint64_t const entry_bits = reinterpret_cast<std::uintptr_t>(entry);
  std::uint64_t const argument_bits = reinterpret_cast<std::uintptr_t>(argument);
  makecontext(&registers_, reinterpret_cast<void (*)()>(&begin), 4,
              static_cast<unsigned>(entry_bits >> 32), static_cast<unsigned>(entry_bits),
              static_cast<unsigned>(argument_bits >> 32), static_cast<unsigned>(argument_bits));
}

void machine_context::switch_to(machine_context& to) {
  swapcontext(&registers_, &to.registers_);
}

}  // namespace qpn::test

#else

// The registers that the System V ABI makes a function keep. The floating-point control words stay
// as they are: no lane program changes them.
asm(R"(
.pushsection .text
.globl qpn_emulator_switch
.hidden qpn_emulator_switch
.type qpn_emulator_switch, @function
qpn_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size qpn_emulator_switch, . - qpn_emulator_switch

.globl qpn_emulator_begin
.hidden qpn_emulator_begin
.type qpn_emulator_begin, @function
qpn_emulator_begin:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size qpn_emulator_begin, . - qpn_emulator_begin
.popsection
)");

extern "C" {
/// Saves the caller's registers on its stack and the stack pointer in *from; goes on at `to`.
void qpn_emulator_switch(void** from, void* to);
/// Where a new stack begins: calls the function in r13 with the argument in r12.
void qpn_emulator_begin();
}

namespace qpn::test {

machine_context::machine_context(void* bottom, std::size_t bytes, void (*entry)(void*),
                                 void* argument) {
  auto const top = (reinterpret_cast<std::uintptr_t>(bottom) + bytes) & ~std::uintptr_t{15};
  // What qpn_emulator_switch pops: r15, r14, r13, r12, rbx, rbp and the return address. After them
  // the stack pointer is a multiple of 16, as the ABI wants it at a call.
  auto* const words = reinterpret_cast<std::uintptr_t*>(top) - 9;
  for (int i = 0; i < 9; ++i) words[i] = 0;
  words[2] = reinterpret_cast<std::uintptr_t>(entry);
  words[3] = reinterpret_cast<std::uintptr_t>(argument);
  words[6] = reinterpret_cast<std::uintptr_t>(&qpn_emulator_begin);
  stack_pointer_ = words;
}

void machine_context::switch_to(machine_context& to) {
  qpn_emulator_switch(&stack_pointer_, to.stack_pointer_);
}

}  // namespace qpn::test

#endif

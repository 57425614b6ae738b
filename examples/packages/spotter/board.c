/* A Cortex-M4 from its reset to main, without a library: vectors, the floating-point unit, variables, and what
 * board.h says. */
#include "board.h"

extern uint32_t data_begin[], data_end[], data_in_flash[], zero_begin[], zero_end[], stack_begin[], stack_end[];

#define UNUSED 0xa5a5a5a5u

/* One of Arm's semihosting calls: the debugger does it at this instruction. */
static int semihosting(int what, const void* with) {
  register int call __asm("r0") = what;
  register const void* block __asm("r1") = with;
  __asm volatile("bkpt 0xab" : "+r"(call) : "r"(block) : "memory");
  return call;
}

enum { kOpen = 0x01, kSay = 0x04, kWrite = 0x05, kRead = 0x06, kExit = 0x20 };

int board_open(const char* name, int is_output) {
  size_t length = 0;
  while (name[length] != 0) ++length;
  const uint32_t block[] = {(uint32_t)name, is_output ? 5 : 1, length}; /* fopen's "wb", "rb" */
  return semihosting(kOpen, block);
}

size_t board_read(int file, void* data, size_t bytes) {
  const uint32_t block[] = {(uint32_t)file, (uint32_t)data, bytes};
  return bytes - (size_t)semihosting(kRead, block); /* it says what is missing */
}

int board_write(int file, const void* data, size_t bytes) {
  const uint32_t block[] = {(uint32_t)file, (uint32_t)data, bytes};
  return semihosting(kWrite, block) == 0;
}

void board_say(const char* text) { semihosting(kSay, text); }

size_t board_stack_used(void) {
  const uint32_t* deepest = stack_begin;
  while (deepest < stack_end && *deepest == UNUSED) ++deepest;
  return (size_t)((const char*)stack_end - (const char*)deepest);
}

static void leave(int status) {
  const uint32_t block[] = {0x20026, (uint32_t)status}; /* the program ends by itself */
  semihosting(kExit, block);
  for (;;) continue;
}

static void reset(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xf << 20; /* CPACR: coprocessors 10 and 11, the floating-point unit */
  __asm volatile("dsb\n isb");
  for (volatile uint32_t *to = data_begin, *from = data_in_flash; to < data_end;) *to++ = *from++;
  for (volatile uint32_t* to = zero_begin; to < zero_end;) *to++ = 0;
  uint32_t* here = 0;
  __asm volatile("mov %0, sp" : "=r"(here));
  for (volatile uint32_t* to = stack_begin; to < here - 16;) *to++ = UNUSED;
  leave(main());
}

static void fault(void) { leave(100); }

/* Where the stack begins, and what is called at a reset and at each kind of fault. */
__attribute__((section(".vectors"), used)) static const struct {
  uint32_t* stack;
  void (*handlers[15])(void);
} vectors = {stack_end, {reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault}};

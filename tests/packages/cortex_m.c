/* What a Cortex-M does before main: its vectors, and the floating-point unit switched on. The library (newlib with
 * semihosting) gives the driver files of the machine that emulates it. */
#include <stdint.h>

extern void _start(void);
extern uint32_t __stack;

static void reset(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xf << 20; /* CPACR: coprocessors 10 and 11 */
  __asm volatile("dsb\n isb");
  _start();
}

static void stop(void) {
  for (;;) continue;
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))&__stack, reset, stop, stop, stop, stop, stop, 0, 0, 0, 0, stop, stop, 0, stop, stop};

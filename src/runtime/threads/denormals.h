#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::runtime {

/// Whether a thread flushes subnormal results to zero and takes subnormal operands as zero. Workers take over the mode
/// of their caller, as torch.set_flush_denormal() promises, and get their own back afterwards.
class DenormalMode {
 public:
  static DenormalMode of_this_thread() { return DenormalMode(control() & kMask); }
  void apply() const { set_control((control() & ~kMask) | bits_); }
  bool flushes() const { return bits_ != 0; }

 private:
  explicit DenormalMode(uint64_t bits) : bits_(bits) {}

#if defined(__x86_64__)
  static constexpr uint64_t kMask = 0x8040;  // MXCSR: flush to zero, denormals are zero
  static uint64_t control() { return _mm_getcsr(); }
  static void set_control(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kMask = uint64_t{1} << 24;  // FPCR: FZ
  static uint64_t control() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static constexpr uint64_t kMask = 0;
  static uint64_t control() { return 0; }
  static void set_control(uint64_t) {}
#endif

  uint64_t bits_;
};

/// Sets this thread's mode; its destructor restores the mode.
class ScopedDenormalMode {
 public:
  explicit ScopedDenormalMode(DenormalMode mode) : before_(DenormalMode::of_this_thread()) { mode.apply(); }
  ~ScopedDenormalMode() { before_.apply(); }
  ScopedDenormalMode(const ScopedDenormalMode&) = delete;
  ScopedDenormalMode& operator=(const ScopedDenormalMode&) = delete;

 private:
  DenormalMode before_;
};

}  // namespace weft::runtime

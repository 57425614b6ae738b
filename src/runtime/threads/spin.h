#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::runtime {

/// Tells the core that this is a busy wait.
inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Spins until done() holds, for at most about `microseconds`. Returns whether it held.
template <typename Done>
bool spin_for(Done done, double microseconds) {
#if defined(__x86_64__)
  constexpr double kTicksPerMicrosecond = 2500;  // of the time stamp counter; 2000 to 4000 on today's CPUs
  const uint64_t start = __rdtsc();
  const uint64_t limit = static_cast<uint64_t>(microseconds * kTicksPerMicrosecond);
  do {
    if (done()) return true;
    pause_core();
  } while (__rdtsc() - start < limit);
#else
  for (int64_t i = 0; i < static_cast<int64_t>(microseconds * 500); ++i)
    if (done()) return true;
#endif
  return done();
}

}  // namespace weft::runtime

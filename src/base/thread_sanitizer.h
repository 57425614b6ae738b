#pragma once

#include <cstdint>

#ifdef WEFT_THREAD_SANITIZER
extern "C" {
void __tsan_read_range(void* data, unsigned long bytes);
void __tsan_write_range(void* data, unsigned long bytes);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace weft {

/// True iff this is a build for ThreadSanitizer (WEFT_SANITIZE=thread).
#ifdef WEFT_THREAD_SANITIZER
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// Announce an access to ThreadSanitizer that its compiler pass does not instrument: an access by machine code of the
/// jit, or by vectors wider than 16 bytes. Nothing in other builds.
inline void announce_read([[maybe_unused]] const void* data, [[maybe_unused]] int64_t bytes) {
#ifdef WEFT_THREAD_SANITIZER
  if (bytes > 0) __tsan_read_range(const_cast<void*>(data), static_cast<unsigned long>(bytes));
#endif
}

inline void announce_write([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#ifdef WEFT_THREAD_SANITIZER
  if (bytes > 0) __tsan_write_range(data, static_cast<unsigned long>(bytes));
#endif
}

/// Announce a happens-before edge to ThreadSanitizer, made by code that it does not instrument: from a thread's release
/// of an address to another thread's acquire of it. Nothing in other builds.
inline void announce_release([[maybe_unused]] void* address) {
#ifdef WEFT_THREAD_SANITIZER
  __tsan_release(address);
#endif
}

inline void announce_acquire([[maybe_unused]] void* address) {
#ifdef WEFT_THREAD_SANITIZER
  __tsan_acquire(address);
#endif
}

}  // namespace weft

#include "runtime/memory/thread_scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace weft::runtime {

void* thread_scratch(int64_t bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local int64_t size = 0;
  if (size < bytes) {
    memory.reset(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)));
    size = memory ? bytes : 0;
    if (!memory) throw std::bad_alloc();
  }
  return memory.get();
}

}  // namespace weft::runtime

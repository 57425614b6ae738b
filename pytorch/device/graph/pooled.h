#pragma once

#include <cstddef>
#include <new>

namespace weft::device {

/// Gives objects of T, which derives from it, the memory of freed ones. Each thread keeps its own: a step makes some
/// thousands of objects and frees them at once, more than the heap's caches of a thread hold.
template <typename T>
class Pooled {
 public:
  static void* operator new(size_t size) {
    if (Free* free = size == sizeof(T) && !blocks_are_gone ? blocks.first : nullptr) {
      blocks.first = free->next;
      --blocks.count;
      return free;
    }
    return ::operator new(size);
  }

  static void operator delete(void* memory, size_t size) noexcept {
    if (size != sizeof(T) || blocks_are_gone || blocks.count >= kMost) return ::operator delete(memory);
    blocks.first = new (memory) Free{blocks.first};
    ++blocks.count;
  }

 private:
  struct Free {
    Free* next;
  };
  struct Blocks {
    Free* first = nullptr;
    size_t count = 0;
    ~Blocks() {
      blocks_are_gone = true;
      while (first != nullptr) {
        Free* next = first->next;
        ::operator delete(first);
        first = next;
      }
    }
  };

#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMost = 0;  // so that the sanitizer sees what is used after it was freed
#else
  static constexpr size_t kMost = size_t{1} << 13U;
#endif
  static thread_local bool blocks_are_gone;  // a thread may still free objects while it ends
  static thread_local Blocks blocks;
};

template <typename T>
thread_local bool Pooled<T>::blocks_are_gone = false;
template <typename T>
thread_local typename Pooled<T>::Blocks Pooled<T>::blocks;

}  // namespace weft::device

#pragma once

#include <cstdint>

#include "runtime/memory/guarded_memory.h"

namespace weft::testing {

/// Elements at the end of an allocation, behind which is no memory.
template <typename T>
struct Elements {
  runtime::GuardedMemory memory;

  explicit Elements(int64_t count)
      : memory(count * int64_t{sizeof(T)}, runtime::GuardedMemory::Side::kEnd, alignof(T)) {}
  T* data() { return reinterpret_cast<T*>(memory.data()); }
  const T* data() const { return reinterpret_cast<const T*>(memory.data()); }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
};

}  // namespace weft::testing

#pragma once

#include <cstdint>

namespace weft::device {

/// Bytes of tensors that storages hold: now, and the most at any time since the peak was last forgotten.
struct MemoryCounts {
  int64_t bytes = 0, most_bytes = 0;
};
MemoryCounts memory_counts();
void forget_peak();

/// Storages of the device that there are.
int64_t storages();

}  // namespace weft::device

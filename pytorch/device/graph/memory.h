#pragma once

#include <cstdint>

namespace weft::device {

/// Bytes of the tensors that storages hold: at present, and the most at any time since forget_peak().
struct MemoryCounts {
  int64_t bytes = 0, most_bytes = 0;
};
MemoryCounts memory_counts();
void forget_peak();

/// The number of the device's storages.
int64_t storages();

}  // namespace weft::device

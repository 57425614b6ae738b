#include "base/memory_range.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft {

std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const MemoryRange> ranges) {
  std::vector<size_t> order;
  for (size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i].last) order.push_back(i);
  auto address = [&](size_t i) { return reinterpret_cast<uintptr_t>(ranges[i].first); };
  std::ranges::sort(order, {}, address);
  // The range that ends last so far, among all and among the written ones: an overlap with the next range shows there.
  const MemoryRange* farthest = nullptr;
  const MemoryRange* farthest_written = nullptr;
  for (size_t i : order) {
    const MemoryRange& range = ranges[i];
    const MemoryRange* before = range.is_written ? farthest : farthest_written;
    if (before && range.first < before->last) return std::minmax({static_cast<size_t>(before - ranges.data()), i});
    if (!farthest || farthest->last < range.last) farthest = &range;
    if (range.is_written && (!farthest_written || farthest_written->last < range.last)) farthest_written = &range;
  }
  return std::nullopt;
}

}  // namespace weft

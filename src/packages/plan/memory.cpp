#include "packages/plan/memory.h"

#include <iterator>

namespace weft::packages {

int64_t Memory::take(int64_t size) {
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
    if (gap->second >= size && (best == gaps_.end() || gap->second < best->second)) best = gap;
  if (best == gaps_.end()) {
    const int64_t offset = bytes;
    bytes += size;
    return offset;
  }
  const auto [offset, room] = *best;
  gaps_.erase(best);
  if (room > size) gaps_[offset + size] = room - size;
  return offset;
}

void Memory::give_back(int64_t offset, int64_t size) {
  if (size == 0) return;
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + size) {
    size += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps_[offset] = size;
}

}  // namespace weft::packages

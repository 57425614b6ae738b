#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace weft {

/// The addresses from `first` to before `last`, which a call reads and may write.
struct MemoryRange {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;
  bool is_written = false;
};

/// Two ranges, by index, that have an address in common and at least one of which is written. Nothing if there are
/// none.
std::optional<std::pair<size_t, size_t>> find_overlap(std::span<const MemoryRange> ranges);

}  // namespace weft

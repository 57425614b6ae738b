#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// What is wrong with `count` rows from `start` on, of a dim of size `size`; empty if they lie within it. `op` names
/// the op that asks for them.
inline std::string row_range_misfit(std::string_view op, int64_t start, int64_t count, int64_t dim, int64_t size) {
  if (count > size) return fmt::format("{}: dimension {} has {} rows, fewer than {}", op, dim, size, count);
  if (start >= 0 && start <= size - count) return "";
  return fmt::format("{}: start {} is out of bounds for dimension {} with size {}: {} rows begin at 0..{}", op, start,
                     dim, size, count, size - count);
}

}  // namespace weft

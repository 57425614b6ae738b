#pragma once

#include <cstdint>
#include <vector>

#include "record/size_fit.h"

namespace weft::programs {

/// Thrown when runs with different sizes did different things.
struct Mismatch {};

/// Whether a number that is `a` in one run and `b` in the other is negative. Throws Mismatch if it is in one of them.
inline bool is_negative(int64_t a, int64_t b) {
  if ((a < 0) != (b < 0)) throw Mismatch();
  return a < 0;
}

/// The size that is `first` in the first run and `second` in the second. Throws Mismatch if there is none.
inline ir::Dim size_of(record::SizeFit& sizes, int64_t first, int64_t second) {
  std::optional<ir::Dim> found = sizes.find(first, second);
  if (!found) throw Mismatch();
  return *std::move(found);
}

inline ir::Shape sizes_of(record::SizeFit& sizes, const std::vector<int64_t>& first,
                          const std::vector<int64_t>& second) {
  if (first.size() != second.size()) throw Mismatch();
  ir::Shape found;
  for (size_t i = 0; i < first.size(); ++i) found.push_back(size_of(sizes, first[i], second[i]));
  return found;
}

}  // namespace weft::programs

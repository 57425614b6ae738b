#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ir/program.h"

namespace weft::packages {

/// Where states, inputs and what a step computes lie in the memory of a state: offsets from its start. Rows, the last
/// dims, are padded to whole vectors, and behind them all is room for a vector block that is read past an end. What is
/// read no longer gives its bytes to what is computed later.
struct Memory {
  /// Where a window lies in its slot: at the row of `dim` that an i32 at this offset says, and, of its first rows, the
  /// copies `rows` further.
  struct Ring {
    int64_t first = 0;
    size_t dim = 0;
    int64_t rows = 0;
  };
  struct Slot {
    int64_t offset = 0, bytes = 0;
    std::vector<int64_t> strides;
    std::optional<Ring> ring;
  };

  /// So many bytes: the smallest gap that has them, or new ones. Of multiples of one alignment offsets are such too.
  int64_t take(int64_t size);
  /// Bytes that `take` gave: others may have them from now on.
  void give_back(int64_t offset, int64_t size);

  std::map<ir::ValueId, Slot> slots;
  int64_t bytes = 0;  ///< of everything

 private:
  std::map<int64_t, int64_t> gaps_;  // bytes by offset; no two are neighbours
};

}  // namespace weft::packages

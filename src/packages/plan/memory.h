#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ir/program.h"

namespace weft::packages {

/// The layout of states, inputs and the step's values in the memory of a state, as offsets from its start. Rows (along
/// the last dim) are padded to whole vectors. At the end there is room for a block of vectors that is read past an end.
/// A value that is read for the last time gives its bytes to later values.
struct Memory {
  /// Where a window lies in its slot. `first` is the offset of an i32, the row of `dim` at which the window begins. The
  /// first rows have copies, `rows` rows further.
  struct Ring {
    int64_t first = 0;
    size_t dim = 0;
    int64_t rows = 0;
  };
  struct Slot {
    int64_t offset = 0, bytes = 0;
    int64_t step = 0;  ///< bytes of one step's value, of a call's that has several
    std::vector<int64_t> strides;
    std::optional<Ring> ring;
  };

  /// The offset of `size` bytes: in the smallest gap that holds them, or new ones at the end. If all sizes are
  /// multiples of an alignment, so are all offsets.
  int64_t take(int64_t size);
  /// Frees bytes that `take` returned.
  void give_back(int64_t offset, int64_t size);

  std::map<ir::ValueId, Slot> slots;
  int64_t bytes = 0;  ///< of everything

 private:
  std::map<int64_t, int64_t> gaps_;  // bytes by offset; no two are neighbours
};

}  // namespace weft::packages

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::runtime {

/// Memory of `bytes` that is taken from time `first` to time `last`, both included.
struct Reservation {
  int64_t bytes;
  int64_t first, last;
};

/// Which reservations stand upon which: those that are taken at the same time never share memory when each begins
/// where the highest of those below it ends. That is so whatever their sizes are, so that the same stacking serves
/// sizes other than those it was made for.
struct Stacking {
  std::vector<uint32_t> order;  ///< all reservations; each comes after those below it
  std::vector<uint32_t> below;  ///< those directly below order[i]: below[begin[i]], ..., below[begin[i + 1] - 1]
  std::vector<uint32_t> begin;

  /// Where each begins, given the sizes; returns where the highest ends.
  int64_t offsets(std::span<const int64_t> bytes, std::span<int64_t> offsets) const;
};

/// Places the largest first, of equal ones the earliest first, each into memory that nothing takes at its time where
/// such is found, else into new memory: first fit, but that only a few free places are looked at. In time n log n, and
/// `below` is of a size linear in n.
Stacking stack(std::span<const Reservation> reservations);

}  // namespace weft::runtime

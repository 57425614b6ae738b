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

/// The order in which reservations are stacked: each begins where the highest of the reservations below it ends, so
/// that reservations which overlap in time share no memory. This holds at any sizes, so a stacking made for some sizes
/// serves others too.
struct Stacking {
  std::vector<uint32_t> order;  ///< all reservations; each comes after those below it
  std::vector<uint32_t> below;  ///< the entries directly below order[i]: below[begin[i]], ..., below[begin[i + 1] - 1]
  std::vector<uint32_t> begin;

  /// Sets where each reservation begins, for these sizes. Returns where the highest one ends.
  int64_t offsets(std::span<const int64_t> bytes, std::span<int64_t> offsets) const;
};

/// Places the largest first, and of equal ones the earliest first. Each goes into memory that is free at its time if
/// some is found, else into new memory: first fit, but only a few free places are looked at. Takes time n log n, and
/// `below` has a size linear in n.
Stacking stack(std::span<const Reservation> reservations);

}  // namespace weft::runtime

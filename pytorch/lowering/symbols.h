#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weft::lowering {

/// Thrown when runs with different sizes did different things.
struct Mismatch {};

/// A size as a number times symbols.
struct Size {
  int64_t factor = 1;
  std::vector<size_t> symbols;
  bool operator==(const Size&) const = default;
};

/// The symbols: each is one prime in the first run and another prime in the second.
class Symbols {
 public:
  /// `at_hand`: the value of each symbol in a third run; empty if there is none.
  Symbols(std::vector<std::pair<int64_t, int64_t>> primes, std::vector<int64_t> at_hand)
      : primes_(std::move(primes)), at_hand_(std::move(at_hand)) {}

  /// The size that is `first` in the one run and `second` in the other: a number times symbols. Throws Mismatch if
  /// there is none.
  Size of(int64_t first, int64_t second) const;
  std::vector<Size> of(const std::vector<int64_t>& first, const std::vector<int64_t>& second) const;
  int64_t at_hand(const Size& size) const;
  size_t count() const { return primes_.size(); }

 private:
  std::vector<std::pair<int64_t, int64_t>> primes_;
  std::vector<int64_t> at_hand_;
};

}  // namespace weft::lowering

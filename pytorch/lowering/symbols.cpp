#include "lowering/symbols.h"

namespace weft::lowering {

Size Symbols::of(int64_t first, int64_t second) const {
  Size size;
  for (size_t symbol = 0; symbol < primes_.size(); ++symbol) {
    auto [p, q] = primes_[symbol];
    while (first != second && first != 0 && first % p == 0 && second % q == 0) {
      first /= p, second /= q;
      size.symbols.push_back(symbol);
    }
  }
  if (first != second) throw Mismatch();
  size.factor = first;
  return size;
}

std::vector<Size> Symbols::of(const std::vector<int64_t>& first, const std::vector<int64_t>& second) const {
  if (first.size() != second.size()) throw Mismatch();
  std::vector<Size> sizes;
  for (size_t i = 0; i < first.size(); ++i) sizes.push_back(of(first[i], second[i]));
  return sizes;
}

int64_t Symbols::at_hand(const Size& size) const {
  int64_t product = size.factor;
  for (size_t symbol : size.symbols) product *= at_hand_[symbol];
  return product;
}

}  // namespace weft::lowering

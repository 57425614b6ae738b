#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/type.h"

namespace weft::ir {

/// Arithmetic on sizes that are numbers. PyTorch's symbolic sizes have their own (pytorch/operator/signature.h).
struct PlainSizes {
  using Int = int64_t;
  static bool is_zero(int64_t size) { return size == 0; }
  static bool is_negative(int64_t size) { return size < 0; }
  /// False where the result overflows.
  static bool multiply(int64_t& product, int64_t size) { return !__builtin_mul_overflow(product, size, &product); }
  static bool add(int64_t& sum, int64_t term) { return !__builtin_add_overflow(sum, term, &sum); }
  /// The quotient, rounded down; `size` is not negative.
  static int64_t divide(int64_t size, int64_t divisor) { return size / divisor; }
  static bool same(int64_t a, int64_t b) { return a == b; }
};

/// Sizes as a call computes them: each is a number times entries of one list. The list begins with the values of the
/// symbols. Derived values follow, each a sum or a division of entries before it, so that every dim can be written as
/// such a product.
class SizeTable {
 public:
  struct Size {
    int64_t factor = 1;
    std::vector<size_t> values;
  };
  /// The sum of the terms divided by the divisor, rounded down.
  struct Derived {
    std::vector<Size> terms;
    int64_t divisor = 1;
  };

  SizeTable() = default;
  explicit SizeTable(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {}

  const std::vector<std::string>& symbols() const { return symbols_; }  ///< sorted
  const std::vector<Derived>& derived() const { return derived_; }

  /// The dim as a product; adds the derived values that it needs to the list. User's error if a symbol is not in
  /// symbols().
  Size add(const Dim& dim);

  /// Appends the derived values to those of symbols. False where one overflows.
  template <typename Arithmetic>
  bool derive(std::vector<typename Arithmetic::Int>& values) const {
    for (const Derived& derived : derived_) {
      typename Arithmetic::Int sum = 0;
      for (const Size& term : derived.terms) {
        auto value = evaluate<Arithmetic>(term, values);
        if (!value || !Arithmetic::add(sum, *value)) return false;
      }
      values.push_back(derived.divisor == 1 ? std::move(sum) : Arithmetic::divide(sum, derived.divisor));
    }
    return true;
  }

  /// The size for these values. Nothing where it overflows, since the low bits might happen to be some tensor's size. 0
  /// times anything is 0.
  template <typename Arithmetic>
  static std::optional<typename Arithmetic::Int> evaluate(const Size& size,
                                                          const std::vector<typename Arithmetic::Int>& values) {
    typename Arithmetic::Int result = size.factor;
    bool fits = true;
    for (size_t value : size.values) {
      if (Arithmetic::is_zero(values[value])) return typename Arithmetic::Int(0);
      fits = fits && Arithmetic::multiply(result, values[value]);
    }
    if (!fits) return std::nullopt;
    return result;
  }

 private:
  Size product(const Dim::Term& term);
  size_t value_of(const Dim::Atom& atom);
  /// The index of a derived value in the list, to which it is added if it is new.
  size_t sum(const Dim& dim, int64_t divisor);

  std::vector<std::string> symbols_;
  std::vector<Derived> derived_;
  std::map<std::pair<Dim, int64_t>, size_t> known_;  ///< by sum and divisor: a derived value's index
};

}  // namespace weft::ir

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace weft::ir {

/// Values of symbols at a call.
using Bindings = std::map<std::string, int64_t>;

/// A size, as an expression of symbols, which stand for numbers known at the call: a sum of products of numbers,
/// symbols and floor divisions by positive numbers, as `3`, `4*T*B`, `T+1`, `B*T-B`, `(T+1)//2`. It is kept in one
/// canonical form, so that sizes that differ as expressions only are equal: `2*(T+1)` is `2*T+2`, and `(T+3)//2` is
/// `(T+1)//2+1`. (Two different forms may still have equal values: `T//2+(T+1)//2` is not found to be `T`.)
class Dim {
 public:
  /// An indivisible factor of a term: a symbol, or a size divided by a number and rounded down.
  struct Atom {
    std::string symbol;                   ///< empty for a division
    std::shared_ptr<const Dim> dividend;  ///< its factors are within 0..divisor-1, so it is never negative
    int64_t divisor = 1;
    std::strong_ordering operator<=>(const Atom& other) const;
    bool operator==(const Atom& other) const { return (*this <=> other) == 0; }
  };
  /// A number times atoms, of which there is at least one.
  struct Term {
    int64_t factor = 1;
    std::vector<Atom> atoms;  ///< sorted
    std::strong_ordering operator<=>(const Term& other) const = default;
    bool operator==(const Term& other) const = default;
  };

  Dim() = default;
  Dim(int64_t number) : number_(number) {}  // NOLINT: a number is a dim
  static Dim symbol(std::string name);

  bool is_constant() const { return terms_.empty(); }
  /// The number; internal error unless is_constant().
  int64_t constant() const;
  /// Whether this is one symbol, times 1.
  bool is_symbol() const;
  /// The symbol's name; internal error unless is_symbol().
  const std::string& name() const;

  /// The term without atoms.
  int64_t number() const { return number_; }
  /// The terms that have atoms, those with more atoms first.
  const std::vector<Term>& terms() const { return terms_; }
  /// The largest number of atoms in a term.
  size_t degree() const { return terms_.empty() ? 0 : terms_[0].atoms.size(); }

  bool mentions(std::string_view symbol) const;
  /// Adds the names of all symbols.
  void add_symbols(std::set<std::string>& symbols) const;

  /// Whether no factor is negative: then no values of symbols make the size negative.
  bool is_never_negative() const;
  /// Whether all values of symbols make the size negative.
  bool is_always_negative() const;

  std::strong_ordering operator<=>(const Dim& other) const;
  bool operator==(const Dim& other) const = default;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend Dim floor_divide(const Dim& a, int64_t divisor);

 private:
  static Dim of_atom(Atom atom);
  /// Appends a term in any order; sort() makes the form canonical again.
  void append(int64_t factor, std::vector<Atom> atoms);
  void sort();

  int64_t number_ = 1;
  std::vector<Term> terms_;
};

// Each throws the user's error where a number overflows 64 bits, or the expression becomes too long.
Dim operator+(const Dim& a, const Dim& b);
Dim operator-(const Dim& a, const Dim& b);
Dim operator*(const Dim& a, const Dim& b);
/// The size divided by a positive number, rounded down.
Dim floor_divide(const Dim& a, int64_t divisor);
/// The product; none where operator* would throw.
std::optional<Dim> try_multiply(const Dim& a, const Dim& b);

using Shape = std::vector<Dim>;

/// The value of a dim under bindings; none if it overflows 64 bits (but 0 times anything is 0). User's error naming the
/// symbol if one is unbound.
std::optional<int64_t> try_evaluate(const Dim& dim, const Bindings& bindings);

/// The same; an overflow is the user's error too.
int64_t evaluate(const Dim& dim, const Bindings& bindings);

/// The value where each symbol is `typical`, within 0..most: for comparing costs.
int64_t estimate(const Dim& dim, int64_t typical, int64_t most);

/// The product of all dims (1 for a scalar).
Dim element_count(const Shape& shape);

size_t hash_of(const Dim& dim);

/// A dense row-major tensor's type, printed `f32[T,B,16]`; a scalar is `f32[]`.
struct Type {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool operator==(const Type&) const = default;
};

std::string to_string(const Dim& dim);
std::string to_string(const Shape& shape);  ///< `[T,B,16]`
std::string to_string(const Type& type);

}  // namespace weft::ir

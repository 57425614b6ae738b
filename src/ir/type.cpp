#include "ir/type.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "base/error.h"

namespace weft::ir {
namespace {

/// More atoms in one size than any real program has. The limit bounds the work for a product of sums in a text.
constexpr size_t kMostAtoms = 256;

int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  check(!__builtin_mul_overflow(a, b, &product), "a size overflows 64 bits: {} times {}", a, b);
  return product;
}

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  check(!__builtin_add_overflow(a, b, &sum), "a size overflows 64 bits: {} plus {}", a, b);
  return sum;
}

int64_t floor_quotient(int64_t a, int64_t divisor) { return a / divisor - (a % divisor < 0); }

/// The atoms of a size, including those of its dividends.
size_t atoms_in(const Dim& dim) {
  size_t count = 0;
  for (const Dim::Term& term : dim.terms())
    for (const Dim::Atom& atom : term.atoms) count += 1 + (atom.dividend ? atoms_in(*atom.dividend) : 0);
  return count;
}

void check_length(const Dim& dim) {
  if (dim.terms().size() > 1 || dim.degree() > 8)
    check(atoms_in(dim) <= kMostAtoms, "a size has more than {} symbols", kMostAtoms);
}

}  // namespace

std::strong_ordering Dim::Atom::operator<=>(const Atom& other) const {
  // Symbols come before divisions.
  if (!dividend || !other.dividend) {
    if (!dividend != !other.dividend) return dividend ? std::strong_ordering::greater : std::strong_ordering::less;
    return symbol <=> other.symbol;
  }
  if (auto order = divisor <=> other.divisor; order != 0) return order;
  return dividend == other.dividend ? std::strong_ordering::equal : *dividend <=> *other.dividend;
}

std::strong_ordering Dim::operator<=>(const Dim& other) const {
  if (auto order = number_ <=> other.number_; order != 0) return order;
  return std::lexicographical_compare_three_way(terms_.begin(), terms_.end(), other.terms_.begin(), other.terms_.end());
}

Dim Dim::of_atom(Atom atom) {
  Dim dim(0);
  Term& term = dim.terms_.emplace_back();
  term.atoms.push_back(std::move(atom));
  return dim;
}

Dim Dim::symbol(std::string name) { return of_atom({std::move(name), nullptr, 1}); }

int64_t Dim::constant() const {
  internal_check(is_constant(), "the dim {} is not a number", to_string(*this));
  return number_;
}

bool Dim::is_symbol() const {
  return number_ == 0 && terms_.size() == 1 && terms_[0].factor == 1 && terms_[0].atoms.size() == 1 &&
         !terms_[0].atoms[0].dividend;
}

const std::string& Dim::name() const {
  internal_check(is_symbol(), "the dim {} is not a symbol", to_string(*this));
  return terms_[0].atoms[0].symbol;
}

bool Dim::mentions(std::string_view symbol) const {
  return std::ranges::any_of(terms_, [&](const Term& term) {
    return std::ranges::any_of(term.atoms, [&](const Atom& atom) {
      return atom.dividend ? atom.dividend->mentions(symbol) : atom.symbol == symbol;
    });
  });
}

void Dim::add_symbols(std::set<std::string>& symbols) const {
  for (const Term& term : terms_)
    for (const Atom& atom : term.atoms)
      if (atom.dividend)
        atom.dividend->add_symbols(symbols);
      else
        symbols.insert(atom.symbol);
}

bool Dim::is_never_negative() const {
  return number_ >= 0 && std::ranges::all_of(terms_, [](const Term& term) { return term.factor > 0; });
}

bool Dim::is_always_negative() const {
  return number_ < 0 && std::ranges::all_of(terms_, [](const Term& term) { return term.factor < 0; });
}

void Dim::append(int64_t factor, std::vector<Atom> atoms) {
  if (factor != 0) terms_.push_back({factor, std::move(atoms)});
}

void Dim::sort() {
  std::ranges::sort(terms_, [](const Term& a, const Term& b) {
    return a.atoms.size() != b.atoms.size() ? a.atoms.size() > b.atoms.size() : a.atoms < b.atoms;
  });
  size_t kept = 0;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (kept > 0 && terms_[kept - 1].atoms == terms_[i].atoms)
      terms_[kept - 1].factor = add(terms_[kept - 1].factor, terms_[i].factor);
    else if (kept++ != i)
      terms_[kept - 1] = std::move(terms_[i]);
    if (terms_[kept - 1].factor == 0) --kept;
  }
  terms_.resize(kept);
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim sum = a;
  sum.number_ = add(a.number_, b.number_);
  if (b.is_constant()) return sum;
  sum.terms_.insert(sum.terms_.end(), b.terms_.begin(), b.terms_.end());
  sum.sort();
  check_length(sum);
  return sum;
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  Dim product(multiply(a.number_, b.number_));
  check(a.terms_.size() * b.terms_.size() <= kMostAtoms, "a size has more than {} symbols", kMostAtoms);
  for (const Dim::Term& term : a.terms_) product.append(multiply(term.factor, b.number_), term.atoms);
  for (const Dim::Term& term : b.terms_) product.append(multiply(term.factor, a.number_), term.atoms);
  for (const Dim::Term& left : a.terms_)
    for (const Dim::Term& right : b.terms_) {
      std::vector<Dim::Atom> atoms;
      std::ranges::merge(left.atoms, right.atoms, std::back_inserter(atoms));
      product.append(multiply(left.factor, right.factor), std::move(atoms));
    }
  if (product.terms_.size() > 1) product.sort();
  check_length(product);
  return product;
}

std::optional<Dim> try_multiply(const Dim& a, const Dim& b) {
  try {
    return a * b;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Dim floor_divide(const Dim& a, int64_t divisor) {
  internal_check(divisor > 0, "a size is divided by {}", divisor);
  // Multiples of the divisor are taken out of the division, so that the remaining factors are within 0..divisor-1.
  Dim whole(floor_quotient(a.number_, divisor)), rest(a.number_ - whole.number_ * divisor);
  int64_t common = divisor;
  for (const Dim::Term& term : a.terms_) {
    const int64_t times = floor_quotient(term.factor, divisor), left = term.factor - times * divisor;
    whole.append(times, term.atoms);
    rest.append(left, term.atoms);
    common = std::gcd(common, left);
  }
  if (rest.is_constant()) return whole;
  rest.number_ /= common;
  for (Dim::Term& term : rest.terms_) term.factor /= common;
  divisor /= common;
  // (x//m + y)//n is (x + m*y)//(m*n).
  auto is_division = [](const Dim::Term& term) {
    return std::ranges::any_of(term.atoms, [](const Dim::Atom& atom) { return atom.dividend != nullptr; });
  };
  auto inner = std::ranges::find_if(rest.terms_, is_division);
  if (inner != rest.terms_.end() && inner->factor == 1 && inner->atoms.size() == 1 &&
      std::none_of(inner + 1, rest.terms_.end(), is_division)) {
    const Dim::Atom division = inner->atoms[0];
    rest.terms_.erase(inner);
    const Dim dividend = *division.dividend + Dim(division.divisor) * rest;
    return whole + floor_divide(dividend, multiply(divisor, division.divisor));
  }
  Dim result = whole + Dim::of_atom({"", std::make_shared<const Dim>(std::move(rest)), divisor});
  check_length(result);
  return result;
}

// ---- values

std::optional<int64_t> try_evaluate(const Dim& dim, const Bindings& bindings) {
  int64_t sum = dim.number();
  bool overflow = false;
  for (const Dim::Term& term : dim.terms()) {
    int64_t product = term.factor;
    bool too_large = false, zero = false;
    for (const Dim::Atom& atom : term.atoms) {
      std::optional<int64_t> value;
      if (atom.dividend) {
        if (value = try_evaluate(*atom.dividend, bindings); value) *value = floor_quotient(*value, atom.divisor);
      } else {
        auto it = bindings.find(atom.symbol);
        check(it != bindings.end(), "the symbol {} of the dim {} has no value", atom.symbol, to_string(dim));
        value = it->second;
      }
      zero = zero || value == 0;
      too_large = too_large || !value || __builtin_mul_overflow(product, *value, &product);
    }
    if (zero) continue;
    overflow = overflow || too_large || __builtin_add_overflow(sum, product, &sum);
  }
  if (overflow) return std::nullopt;
  return sum;
}

int64_t evaluate(const Dim& dim, const Bindings& bindings) {
  std::optional<int64_t> value = try_evaluate(dim, bindings);
  check(value.has_value(), "the size {} overflows 64 bits", to_string(dim));
  return *value;
}

int64_t estimate(const Dim& dim, int64_t typical, int64_t most) {
  auto sum = static_cast<double>(dim.number());
  for (const Dim::Term& term : dim.terms()) {
    auto product = static_cast<double>(term.factor);
    for (const Dim::Atom& atom : term.atoms)
      product *= static_cast<double>(atom.dividend ? estimate(*atom.dividend, typical, most) / atom.divisor : typical);
    sum += product;
  }
  return sum <= 0 ? 0 : sum >= static_cast<double>(most) ? most : static_cast<int64_t>(sum);
}

Dim element_count(const Shape& shape) {
  // A dim of 0 makes the product 0, even where the other dims alone would overflow.
  if (std::ranges::find(shape, Dim(0)) != shape.end()) return Dim(0);
  Dim count(1);
  for (const Dim& dim : shape) count = count * dim;
  return count;
}

size_t hash_of(const Dim& dim) {
  auto hash = static_cast<size_t>(dim.number());
  auto mix = [&](size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15U; };
  for (const Dim::Term& term : dim.terms()) {
    mix(static_cast<size_t>(term.factor));
    for (const Dim::Atom& atom : term.atoms)
      mix(atom.dividend ? hash_of(*atom.dividend) + static_cast<size_t>(atom.divisor)
                        : std::hash<std::string>{}(atom.symbol));
  }
  return hash;
}

// ---- text

namespace {

std::string text_of(const Dim::Atom& atom) {
  if (!atom.dividend) return atom.symbol;
  const std::string dividend = to_string(*atom.dividend);
  return (atom.dividend->is_symbol() ? dividend : "(" + dividend + ")") + "//" + std::to_string(atom.divisor);
}

/// A term without its sign. `4*(T//2)`: as in Python, `4*T//2` would divide the product.
std::string magnitude_text(const Dim::Term& term) {
  if (term.factor == 1 && term.atoms.size() == 1) return text_of(term.atoms[0]);
  std::string text = term.factor == 1 || term.factor == -1 ? "" : std::to_string(term.factor).substr(term.factor < 0);
  for (const Dim::Atom& atom : term.atoms) {
    if (!text.empty()) text += '*';
    const bool alone = text.empty() && term.atoms.size() == 1;
    text += atom.dividend && !alone ? "(" + text_of(atom) + ")" : text_of(atom);
  }
  return text;
}

}  // namespace

std::string to_string(const Dim& dim) {
  if (dim.is_constant()) return std::to_string(dim.number());
  std::string text;
  // A text doesn't begin with a minus: `5-T`.
  const bool number_first = dim.terms()[0].factor < 0;
  if (number_first) text = std::to_string(dim.number());
  for (const Dim::Term& term : dim.terms()) {
    if (!text.empty() || term.factor < 0) text += term.factor < 0 ? '-' : '+';
    text += magnitude_text(term);
  }
  if (!number_first && dim.number() > 0) text += '+';
  if (!number_first && dim.number() != 0) text += std::to_string(dim.number());
  return text;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) {
    if (text.size() > 1) text += ',';
    text += to_string(dim);
  }
  return text + "]";
}

std::string to_string(const Type& type) { return std::string(name_of(type.dtype)) + to_string(type.shape); }

}  // namespace weft::ir

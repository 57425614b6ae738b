#include "ir/size_table.h"

#include <algorithm>

#include "base/error.h"

namespace weft::ir {

SizeTable::Size SizeTable::add(const Dim& dim) {
  if (dim.is_constant()) return {dim.constant(), {}};
  if (dim.number() == 0 && dim.terms().size() == 1) return product(dim.terms()[0]);
  return {1, {sum(dim, 1)}};
}

SizeTable::Size SizeTable::product(const Dim::Term& term) {
  Size size{term.factor, {}};
  for (const Dim::Atom& atom : term.atoms) size.values.push_back(value_of(atom));
  return size;
}

size_t SizeTable::value_of(const Dim::Atom& atom) {
  if (atom.dividend) return sum(*atom.dividend, atom.divisor);
  auto found = std::ranges::lower_bound(symbols_, atom.symbol);
  check(found != symbols_.end() && *found == atom.symbol, "the symbol {} is no size of any input", atom.symbol);
  return static_cast<size_t>(found - symbols_.begin());
}

size_t SizeTable::sum(const Dim& dim, int64_t divisor) {
  auto known = known_.find({dim, divisor});
  if (known != known_.end()) return known->second;
  Derived derived{{}, divisor};
  for (const Dim::Term& term : dim.terms()) derived.terms.push_back(product(term));
  if (dim.number() != 0) derived.terms.push_back({dim.number(), {}});
  derived_.push_back(std::move(derived));
  return known_[{dim, divisor}] = symbols_.size() + derived_.size() - 1;
}

}  // namespace weft::ir

#include "planning/bounded_size.h"

namespace weft::planning {

ir::Dim bounded_product(const ir::Dim& a, const ir::Dim& b) {
  // An overflow counts as the largest number times the symbols of both sizes, since a symbol may be 0.
  if (auto product = try_multiply(a, b)) return *std::move(product);
  ir::Dim most(INT64_MAX);
  for (const ir::Dim* dim : {&a, &b}) {
    if (dim->terms().size() != 1 || dim->number() != 0) continue;
    for (const ir::Dim::Atom& atom : dim->terms()[0].atoms)
      if (!atom.dividend) most = most * ir::Dim::symbol(atom.symbol);
  }
  return most;
}

ir::Dim bounded_count(std::span<const ir::Dim> dims) {
  ir::Dim count(1);
  for (const ir::Dim& dim : dims) count = bounded_product(count, dim);
  return count;
}

}  // namespace weft::planning

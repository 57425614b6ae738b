#include "ir/inline.h"

#include <algorithm>

namespace weft::ir {

Dim substitute(const Dim& dim, const SymbolSizes& sizes) {
  Dim result(dim.number());
  for (const Dim::Term& term : dim.terms()) {
    Dim product(term.factor);
    for (const Dim::Atom& atom : term.atoms) {
      if (atom.dividend) {
        product = product * floor_divide(substitute(*atom.dividend, sizes), atom.divisor);
        continue;
      }
      auto it = sizes.find(atom.symbol);
      check(it != sizes.end(), "the called program's symbol {} is no input's dim", atom.symbol);
      product = product * it->second;
    }
    result = result + product;
  }
  return result;
}

Type substitute(const Type& type, const SymbolSizes& sizes) {
  Type result{type.dtype, {}};
  for (const Dim& dim : type.shape) result.shape.push_back(substitute(dim, sizes));
  return result;
}

namespace {

/// The dim that each symbol of `callee` becomes for these inputs.
SymbolSizes match(const Program& callee, const Program& caller, std::span<const ValueId> inputs) {
  const std::vector<ValueId>& args = callee.body.args;
  check(args.size() == inputs.size(), "the called program takes {} inputs, not {}", args.size(), inputs.size());
  SymbolSizes sizes;
  for (size_t i = 0; i < args.size(); ++i) {
    const Shape& shape = callee.type(args[i]).shape;
    const Shape& actual = caller.type(inputs[i]).shape;
    check(shape.size() == actual.size(), "input {} of the called program has {} dims, not {}", i, shape.size(),
          actual.size());
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].is_symbol()) sizes.try_emplace(shape[d].name(), actual[d]);
  }
  for (size_t i = 0; i < args.size(); ++i) {
    Type want = substitute(callee.type(args[i]), sizes);
    const Type& have = caller.type(inputs[i]);
    check(want == have, "input {} of the called program is {}, not {}", i, to_string(want), to_string(have));
  }
  return sizes;
}

/// Copies blocks of one program into another.
class Splice {
 public:
  Splice(const Program& from, Program& to, SymbolSizes sizes) : from_(from), to_(to), sizes_(std::move(sizes)) {}

  void bind(ValueId from, ValueId to) { values_[from] = to; }
  ValueId operator[](ValueId id) const { return values_.at(id); }

  void append(const Block& block, Block& target) {
    for (const Op& op : block.ops) target.ops.push_back(copy(op));
  }

 private:
  ValueId define(ValueId id) {
    return values_[id] = to_.new_value(substitute(from_.type(id), sizes_), from_.values[id].name);
  }

  /// A bound that becomes a number turns into an integer attribute; other sizes stay dims.
  Attr substituted(std::string_view attr, const Dim& dim) const {
    Dim result = substitute(dim, sizes_);
    if (is_bound(attr)) return as_attr(std::move(result));
    return result;
  }

  Op copy(const Op& op) {
    Op result{op.code, {}, {}, op.attrs, {}};
    for (auto& [name, attr] : result.attrs)
      if (const auto* dim = std::get_if<Dim>(&attr)) attr = substituted(name, *dim);
    for (ValueId id : op.operands) result.operands.push_back(values_.at(id));
    for (const Block& region : op.regions) {
      Block& block = result.regions.emplace_back();
      for (ValueId id : region.args) block.args.push_back(define(id));
      append(region, block);
      for (ValueId id : region.results) block.results.push_back(values_.at(id));
    }
    for (ValueId id : op.results) result.results.push_back(define(id));
    return result;
  }

  const Program& from_;
  Program& to_;
  SymbolSizes sizes_;
  std::map<ValueId, ValueId> values_;
};

bool ragged_scans_fit(const Block& block, const SymbolSizes& sizes) {
  return std::ranges::all_of(block.ops, [&](const Op& op) {
    const auto size = [&](std::string_view name) { return substitute(op.attr<Dim>(name), sizes); };
    const bool is_ragged = op.code == OpCode::kScan && op.has("rows");
    if (is_ragged && !are_ragged_sizes(size("rows"), size("packed"), size("length"))) return false;
    return std::ranges::all_of(op.regions, [&](const Block& region) { return ragged_scans_fit(region, sizes); });
  });
}

}  // namespace

bool can_inline(const Program& callee, const Program& caller, std::span<const ValueId> inputs) {
  return ragged_scans_fit(callee.body, match(callee, caller, inputs));
}

std::vector<ValueId> inline_program(Builder& builder, const Program& callee, std::span<const ValueId> inputs) {
  Splice splice(callee, builder.program(), match(callee, builder.program(), inputs));
  for (size_t i = 0; i < inputs.size(); ++i) splice.bind(callee.body.args[i], inputs[i]);
  splice.append(callee.body, builder.block());
  std::vector<ValueId> results;
  for (ValueId id : callee.body.results) results.push_back(splice[id]);
  return results;
}

}  // namespace weft::ir

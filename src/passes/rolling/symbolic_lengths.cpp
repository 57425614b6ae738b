#include "passes/rolling/symbolic_lengths.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/verifier.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Program;

/// How much shorter than its sequence a loop may be: `roll` leaves a first and a last step that differ outside.
constexpr int64_t kMostLeftOut = 2;
constexpr int64_t kFewestScanned = 3;

template <typename Visit>
void for_each_op(Block& block, const Visit& visit) {
  for (Op& op : block.ops) {
    visit(op);
    for (Block& region : op.regions) for_each_op(region, visit);
  }
}

/// The constant lengths of loops that have xs.
std::set<int64_t> lengths_of(Program& program) {
  std::set<int64_t> lengths;
  for_each_op(program.body, [&](const Op& op) {
    if (op.code != OpCode::kScan || op.has("rows")) return;
    if (static_cast<int64_t>(op.operands.size()) == op.attr<int64_t>("carries")) return;
    if (const auto length = op.attr<Dim>("length"); length.is_constant() && length.constant() >= kFewestScanned)
      lengths.insert(length.constant());
  });
  return lengths;
}

/// Sizes of inputs that may be a loop's length. The last dim of an input of rank 2 or more is left out, since it holds
/// features.
std::vector<int64_t> candidates(Program& program) {
  const std::set<int64_t> lengths = lengths_of(program);
  std::vector<int64_t> found;
  if (lengths.empty()) return found;
  for (ir::ValueId input : program.body.args) {
    const ir::Shape& shape = program.type(input).shape;
    for (size_t dim = 0; dim < shape.size() && (dim == 0 || dim + 1 < shape.size()); ++dim) {
      if (!shape[dim].is_constant()) continue;
      const int64_t size = shape[dim].constant();
      const auto length = lengths.lower_bound(size - kMostLeftOut);
      if (length == lengths.end() || *length > size) continue;
      if (std::ranges::find(found, size) == found.end()) found.push_back(size);
    }
  }
  return found;
}

/// Replaces a number by a symbol wherever the number is a size.
class LengthSymbol {
 public:
  /// `below`: a size up to this much less than `size` becomes the symbol minus the difference.
  LengthSymbol(int64_t size, int64_t below, Dim symbol) : size_(size), below_(below), symbol_(std::move(symbol)) {}

  void run(Program& program) const {
    for (ir::Value& value : program.values)
      for (Dim& dim : value.type.shape) dim = of(dim, below_);
    for_each_op(program.body, [&](Op& op) {
      if (op.code == OpCode::kScan) op.attrs.find("length")->second = of(op.attr<Dim>("length"), kMostLeftOut);
      if (!ir::is_range(op.code)) return;
      const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
      if (!program.type(op.operands[0]).shape[dim].mentions(symbol_.name())) return;
      for (std::string_view name : {"start", "limit"})
        op.attrs.find(name)->second = ir::as_attr(of(ir::size_attr(op, name), kMostLeftOut));
    });
  }

 private:
  Dim of(int64_t number, int64_t below) const {
    const bool is_meant = number > 1 && number <= size_ && number >= size_ - below;
    return is_meant ? symbol_ + Dim(number - size_) : Dim(number);
  }

  /// Factors of products of symbols are sizes too, as in [9*B].
  Dim of(const Dim& dim, int64_t below) const {
    Dim sum = of(dim.number(), below);
    for (const Dim::Term& term : dim.terms()) {
      if (std::ranges::any_of(term.atoms, [](const Dim::Atom& atom) { return atom.symbol.empty(); })) return dim;
      Dim product = of(term.factor, below);
      for (const Dim::Atom& atom : term.atoms) product = product * Dim::symbol(atom.symbol);
      sum = sum + product;
    }
    return sum;
  }

  int64_t size_, below_;
  Dim symbol_;
};

/// Whether an op can't take a symbolic size: a product with weights, or an op whose derivative is a text that contains
/// the size as a number.
bool wants_numbers(Program& program, const Dim& symbol) {
  bool found = false;
  for_each_op(program.body, [&](const Op& op) {
    auto is_symbolic = [&](ir::ValueId operand) {
      return std::ranges::any_of(program.type(operand).shape,
                                 [&](const Dim& dim) { return dim.mentions(symbol.name()); });
    };
    if (const ir::ValueId weights = ir::weights_of(op); weights != ir::kNoValue)
      found = found || is_symbolic(weights);
    else if (op.has("vjp"))
      found = found || std::ranges::any_of(op.operands, is_symbolic) || std::ranges::any_of(op.results, is_symbolic);
  });
  return found;
}

bool is_valid(const Program& program) {
  try {
    ir::verify(program);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Dim fresh_symbol(const Program& program) {
  std::set<std::string> taken;
  for (const ir::Value& value : program.values)
    for (const Dim& dim : value.type.shape) dim.add_symbols(taken);
  std::string name = "T";
  while (taken.contains(name)) name += "_";
  return Dim::symbol(name);
}

void symbolic_lengths(Program& program) {
  for (int64_t size : candidates(program)) {
    const Dim symbol = fresh_symbol(program);
    for (int64_t below : {int64_t{0}, kMostLeftOut}) {
      Program general = program;
      LengthSymbol(size, below, symbol).run(general);
      if (!is_valid(general) || wants_numbers(general, symbol)) continue;
      program = std::move(general);
      break;
    }
  }
}

}  // namespace weft::passes

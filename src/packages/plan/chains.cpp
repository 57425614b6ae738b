#include "packages/plan/chains.h"

#include <algorithm>

#include "packages/plan/tasks.h"

namespace weft::packages {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;

/// The most ops and leaves of a term.
constexpr size_t kMostNodes = 16;

/// An op or leaf of a term, in the order of operands.
struct Node {
  const Op* op = nullptr;         ///< null: a leaf
  ValueId memory = ir::kNoValue;  ///< a leaf: a value in memory, or what is sliced; none: a constant
  ValueId value = ir::kNoValue;   ///< a leaf
  std::vector<int64_t> starts;    ///< of a slice
};
using Term = std::vector<Node>;

class Chains {
 public:
  Chains(const Bound& step, const std::function<bool(ValueId)>& in_memory) : step_(step), in_memory_(in_memory) {}

  std::vector<ValueId> terms_of(ValueId value, const std::function<bool(ValueId)>& is_shared) const {
    const OpCode code = step_.op_of(value)->code;
    std::vector<ValueId> terms;
    while (true) {
      const Op* op = step_.op_of(value);
      const auto goes_on = [&](ValueId operand) {
        const Op* inner = computed(operand);
        return inner != nullptr && inner->code == code && !is_shared(operand);
      };
      const bool is_second = !goes_on(op->operands[0]) && goes_on(op->operands[1]);
      const ValueId inner = op->operands[is_second ? 1 : 0];
      terms.push_back(op->operands[is_second ? 0 : 1]);
      value = inner;
      if (goes_on(inner)) continue;
      terms.push_back(inner);
      std::ranges::reverse(terms);
      return terms;
    }
  }

  /// Whether the value is computed from memory by elementwise ops and views alone. Collects them.
  bool describe(ValueId value, Term& term) const {
    if (term.size() >= kMostNodes) return false;
    const Op* op = step_.op_of(value);
    const bool is_repeated = op != nullptr && ir::is_repeated(op->code);
    if (in_memory_(value) || (op != nullptr && ir::is_range(op->code) && !step_.is_constant(value)))
      return describe_slice(value, term);
    if (step_.is_constant(value) && !is_repeated) {
      term.push_back({nullptr, ir::kNoValue, value, {}});
      return true;
    }
    const bool is_view =
        is_repeated ||
        (op != nullptr && (ir::is_alias(op->code) || ir::elements_of(op->code) == ir::Elements::kPermuted));
    if (op == nullptr || is_product(step_, *op) ||
        (!is_view && ir::info(op->code).op_class != ir::OpClass::kElementwise))
      return false;
    term.push_back({op, ir::kNoValue, value, {}});
    return std::ranges::all_of(op->operands, [&](ValueId operand) { return describe(operand, term); });
  }

  bool has_product(ValueId value, size_t& visited) const {
    const Op* op = computed(value);
    if (op == nullptr) return false;
    if (++visited > 4 * kMostNodes || is_product(step_, *op)) return true;
    return std::ranges::any_of(op->operands, [&](ValueId operand) { return has_product(operand, visited); });
  }

  /// Whether the terms are the same but for their slices' starts and their constants.
  bool are_alike(const Term& a, const Term& b) const {
    const auto type = [&](const Node& node) -> const ir::Type& { return step_.program().type(node.value); };
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)  // a leaf that a term reads twice moves in one way
      for (size_t j = 0; j < i; ++j)
        if ((a[i].value == a[j].value) != (b[i].value == b[j].value)) return false;
    return std::ranges::equal(a, b, [&](const Node& x, const Node& y) {
      if ((x.op == nullptr) != (y.op == nullptr) || x.memory != y.memory || type(x) != type(y)) return false;
      return x.op == nullptr || (x.op->code == y.op->code && x.op->attrs == y.op->attrs);
    });
  }

  /// Whether the slices of `c` are as far from those of `b` as these from those of `a`.
  static bool is_next(const Term& a, const Term& b, const Term& c) {
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t d = 0; d < a[i].starts.size(); ++d)
        if (c[i].starts[d] - b[i].starts[d] != b[i].starts[d] - a[i].starts[d]) return false;
    return true;
  }

  static std::vector<ChainLeaf> leaves_of(std::span<const Term> terms) {
    std::vector<ChainLeaf> leaves;
    for (size_t i = 0; i < terms[0].size(); ++i) {
      const Node& first = terms[0][i];
      ChainLeaf leaf{first.value, {}, first.memory, first.starts, {}};
      if (first.op != nullptr) continue;
      for (size_t d = 0; d < first.starts.size(); ++d)
        leaf.distances.push_back(terms[1][i].starts[d] - first.starts[d]);
      if (first.memory == ir::kNoValue)
        for (const Term& term : terms) leaf.constants.push_back(term[i].value);
      leaves.push_back(std::move(leaf));
    }
    return leaves;
  }

 private:
  /// The op of a value that is computed where it is read.
  const Op* computed(ValueId value) const {
    return in_memory_(value) || step_.is_constant(value) ? nullptr : step_.op_of(value);
  }

  bool describe_slice(ValueId value, Term& term) const {
    std::optional<SliceOf> slice = slice_of(step_, value, in_memory_);
    if (slice) term.push_back({nullptr, slice->memory, value, std::move(slice->starts)});
    return slice.has_value();
  }

  const Bound& step_;
  const std::function<bool(ValueId)>& in_memory_;
};

}  // namespace

std::optional<SliceOf> slice_of(const Bound& step, ValueId value, const std::function<bool(ValueId)>& in_memory) {
  SliceOf slice{value, std::vector<int64_t>(step.program().type(value).shape.size())};
  while (!in_memory(slice.memory)) {
    const Op* op = step.op_of(slice.memory);
    if (op == nullptr || !ir::is_range(op->code)) return std::nullopt;
    slice.starts[static_cast<size_t>(op->attr<int64_t>("dim"))] += op->attr<int64_t>("start");
    slice.memory = op->operands[0];
  }
  return slice;
}

std::vector<ChainPart> chain_of(const Bound& step, ValueId value, size_t least,
                                const std::function<bool(ValueId)>& in_memory,
                                const std::function<bool(ValueId)>& is_shared) {
  const Chains chains(step, in_memory);
  const std::vector<ValueId> terms = chains.terms_of(value, is_shared);
  if (terms.size() < least) return {};
  std::vector<Term> described(terms.size());
  for (size_t i = 0; i < terms.size(); ++i)
    if (!chains.describe(terms[i], described[i])) described[i].clear();
  std::vector<ChainPart> parts;
  bool rolls = false;
  for (size_t first = 0, count = 1; first < terms.size(); first += count) {
    count = 1;
    const auto follows = [&](size_t next) {
      return !described[first].empty() && next < terms.size() && chains.are_alike(described[first], described[next]) &&
             (next < first + 2 || Chains::is_next(described[next - 2], described[next - 1], described[next]));
    };
    while (follows(first + count)) ++count;
    if (count < least) {
      count = 1;
      size_t visited = 0;
      if (chains.has_product(terms[first], visited)) return {};
    }
    rolls = rolls || count > 1;
    const std::span<const Term> alike(described.data() + first, count);
    parts.push_back({{terms.begin() + static_cast<std::ptrdiff_t>(first),
                      terms.begin() + static_cast<std::ptrdiff_t>(first + count)},
                     count > 1 ? Chains::leaves_of(alike) : std::vector<ChainLeaf>()});
  }
  return rolls ? parts : std::vector<ChainPart>();
}

}  // namespace weft::packages

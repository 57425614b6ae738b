#include "passes/simplification/simplifier.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "passes/simplification/folded.h"

namespace weft::passes {

using ir::Attrs;
using ir::Block;
using ir::Dim;
using ir::kNoValue;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Type;
using ir::ValueId;

Block* Simplifier::enter(Block* block) {
  for (RaggedRegion& region : ragged_) region.blocks.insert(block);
  return std::exchange(block_, block);
}

bool Simplifier::is_hidden(const Place& place) const {
  const Op& op = place.block->ops[place.index];
  return std::ranges::any_of(ragged_, [&](const RaggedRegion& region) {
    if (region.blocks.contains(place.block)) return false;
    auto mentions = [&](ValueId v) { return mentions_rows(program_.type(v), region.ragged); };
    return std::ranges::any_of(op.operands, mentions) || std::ranges::any_of(op.results, mentions);
  });
}

const Op* Simplifier::definition(ValueId value) const {
  if (value >= places_.size() || !places_[value].block || is_hidden(places_[value])) return nullptr;
  return &places_[value].block->ops[places_[value].index];
}

const Op* Simplifier::definition(ValueId value, OpCode code) const {
  const Op* op = definition(value);
  return op && op->code == code ? op : nullptr;
}

std::optional<double> Simplifier::splat(ValueId value) const {
  const Op* op = definition(value, OpCode::kConstant);
  return op ? std::optional(op->attr<double>("value")) : std::nullopt;
}

ValueId Simplifier::negation_of(ValueId value) const {
  const Op* op = definition(value, OpCode::kNot);
  return op ? op->operands[0] : kNoValue;
}

void Simplifier::append(Op op) {
  if (places_.size() < program_.values.size()) places_.resize(program_.values.size() + program_.values.size() / 2);
  for (ValueId result : op.results) places_[result] = {block_, block_->ops.size()};
  block_->ops.push_back(std::move(op));
}

ValueId Simplifier::add(Op op) {
  ValueId own = op.results[0];
  if (ValueId simpler = simplify(op); simpler != kNoValue) {
    changed = true;
    if (auto& name = program_.values[simpler].name; name.empty()) name = program_.values[own].name;
    return simpler;
  }
  append(std::move(op));
  return own;
}

ValueId Simplifier::make(OpCode code, std::vector<ValueId> operands, Attrs attrs, const Type* declared) {
  std::vector<Type> types;
  if (declared) types.push_back(*declared);
  Op op{code, std::move(operands), {}, std::move(attrs), {}};
  types = infer_types(program_, op, types);
  op.results.push_back(program_.new_value(std::move(types[0])));
  return add(std::move(op));
}

ValueId Simplifier::constant(double value, const Type& type) {
  Type copy = type;
  return make(OpCode::kConstant, {}, {{"value", value}}, &copy);
}

ValueId Simplifier::slice(ValueId value, int64_t dim, const Dim& start, const Dim& limit) {
  return make(OpCode::kSlice, {value}, {{"dim", dim}, {"start", as_attr(start)}, {"limit", as_attr(limit)}});
}

ValueId Simplifier::simplify(Op& op) {
  ValueId result = kNoValue;
  switch (op.code) {
    case OpCode::kBroadcast:
      return broadcast(op);
    case OpCode::kReshape:
      return reshape(op);
    case OpCode::kTranspose:
      return transpose(op);
    case OpCode::kSlice:
      return slice_of(op);
    case OpCode::kPad:
      return pad(op);
    case OpCode::kConcat:
      return concat(op);
    case OpCode::kReverse:
      return reverse(op);
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return reduce(op);
    case OpCode::kMatmul:
    case OpCode::kBatchMatmul:
      if (transpose_operands(op)) changed = true;
      return kNoValue;
    default:
      break;
  }
  if (info(op.code).op_class != OpClass::kElementwise) return kNoValue;
  if (result = fold(op); result != kNoValue) return result;
  if (op.operands.size() == 1) result = simplify_unary(op);
  if (op.operands.size() == 2) result = simplify_binary(op);
  if (result == kNoValue) result = simplify_logic(op);
  if (result == kNoValue) result = behind_broadcast(op);
  return result;
}

namespace {

bool is_lossless(DType from, DType to) {
  if (from == to) return true;
  if (to == DType::kF64) return from == DType::kF32 || is_half(from);
  return to == DType::kF32 && is_half(from);
}

/// The number rounded to the type; none for types whose constants are not folded.
std::optional<double> rounded(double value, DType dtype) {
  if (dtype == DType::kF64) return value;
  if (dtype == DType::kF32) return static_cast<double>(static_cast<float>(value));
  return std::nullopt;
}

}  // namespace

/// Folds ops on constants of f32 and f64, where the result is exactly the op's. The elements of a constant are its
/// number rounded to its type.
ValueId Simplifier::fold(const Op& op) {
  if (op.operands.empty() || op.operands.size() > 2) return kNoValue;
  DType from = type(op.operands[0]).dtype;
  auto element = [&](ValueId v) {
    std::optional<double> number = splat(v);
    return number && from != DType::kBool ? rounded(*number, from) : number;
  };
  std::optional<double> a = element(op.operands[0]);
  std::optional<double> b = element(op.operands.back());
  if (!a || !b) return kNoValue;
  Type result = type(op.results[0]);
  if (op.code == OpCode::kCast) {
    std::optional<double> value = rounded(*a, result.dtype);
    return value ? constant(*value, result) : kNoValue;
  }
  if (from == DType::kBool) return kNoValue;
  if (std::optional<bool> value = compared(op.code, *a, *b)) return constant(*value, result);
  std::optional<double> value = folded(op.code, *a, *b);
  if (value) value = rounded(*value, from);
  return value ? constant(*value, result) : kNoValue;
}

ValueId Simplifier::simplify_unary(const Op& op) {
  ValueId x = op.operands[0];
  const Op* inner = definition(x);
  switch (op.code) {
    case OpCode::kCopy:
      return x;
    case OpCode::kNeg:
    case OpCode::kNot:
      return inner && inner->code == op.code ? inner->operands[0] : kNoValue;
    case OpCode::kRelu:
    case OpCode::kAbs:
      return inner && inner->code == op.code ? x : kNoValue;
    case OpCode::kCast: {
      DType to = type(op.results[0]).dtype;
      if (to == type(x).dtype) return x;
      if (!inner || inner->code != OpCode::kCast) return kNoValue;
      DType first = type(inner->operands[0]).dtype;
      if (!is_lossless(first, type(x).dtype)) return kNoValue;
      Type declared = type(op.results[0]);
      return make(OpCode::kCast, {inner->operands[0]}, {}, &declared);
    }
    default:
      return kNoValue;
  }
}

ValueId Simplifier::simplify_binary(const Op& op) {
  ValueId a = op.operands[0];
  ValueId b = op.operands[1];
  const Op* neg_a = definition(a, OpCode::kNeg);
  const Op* neg_b = definition(b, OpCode::kNeg);
  std::optional<double> left = splat(a);
  std::optional<double> right = splat(b);
  bool is_float = is_floating(type(a).dtype);
  // x + 0 is not x for x = -0, but x + (-0) and x - 0 are.
  auto adds_nothing = [&](std::optional<double> value) {
    return value && *value == 0 && (!is_float || std::signbit(*value));
  };
  switch (op.code) {
    case OpCode::kAdd:
      if (adds_nothing(left)) return b;
      if (adds_nothing(right)) return a;
      if (neg_b) return make(OpCode::kSub, {a, neg_b->operands[0]});
      if (neg_a) return make(OpCode::kSub, {b, neg_a->operands[0]});
      return sum_of_pads(op);
    case OpCode::kSub:
      if (right && *right == 0 && !std::signbit(*right)) return a;
      if (neg_b) return make(OpCode::kAdd, {a, neg_b->operands[0]});
      return kNoValue;
    case OpCode::kMul:
      if (left && *left == 1) return b;
      if (right && *right == 1) return a;
      if (left && *left == -1) return make(OpCode::kNeg, {b});
      if (right && *right == -1) return make(OpCode::kNeg, {a});
      if (neg_a && neg_b) return make(OpCode::kMul, {neg_a->operands[0], neg_b->operands[0]});
      return kNoValue;
    case OpCode::kDiv:
      if (right && *right == 1) return a;
      return kNoValue;
    case OpCode::kPow:
      if (right && *right == 1) return a;
      if (right && *right == 2) return make(OpCode::kMul, {a, a});
      return kNoValue;
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kAnd:
    case OpCode::kOr:
      return a == b ? a : kNoValue;
    default:
      return kNoValue;
  }
}

ValueId Simplifier::simplify_logic(const Op& op) {
  if (op.code == OpCode::kSelect) {
    if (op.operands[1] == op.operands[2]) return op.operands[1];
    if (std::optional<double> c = splat(op.operands[0])) return op.operands[*c != 0 ? 1 : 2];
    if (const Op* negated = definition(op.operands[0], OpCode::kNot))
      return make(OpCode::kSelect, {negated->operands[0], op.operands[2], op.operands[1]});
  }
  if ((op.code == OpCode::kAnd || op.code == OpCode::kOr) && type(op.results[0]).dtype == DType::kBool)
    for (size_t i = 0; i < 2; ++i)
      if (std::optional<double> c = splat(op.operands[i])) {
        bool decides = (*c != 0) == (op.code == OpCode::kOr);
        return op.operands[decides ? i : 1 - i];
      }
  return kNoValue;
}

/// Moves an elementwise op before broadcasts: if all operands are broadcasts with equal dims, or constants, the op
/// works on what they broadcast.
ValueId Simplifier::behind_broadcast(const Op& op) {
  const Op* first = nullptr;
  for (ValueId v : op.operands) {
    if (splat(v)) continue;
    const Op* each = definition(v, OpCode::kBroadcast);
    if (!each) return kNoValue;
    if (!first) first = each;
    if (each->attrs != first->attrs || type(each->operands[0]).shape != type(first->operands[0]).shape) return kNoValue;
  }
  if (!first) return kNoValue;
  Attrs attrs = first->attrs;
  ir::Shape small = type(first->operands[0]).shape;
  std::vector<ValueId> operands;
  for (ValueId v : op.operands) {
    std::optional<double> value = splat(v);
    Type small_type{type(v).dtype, small};
    operands.push_back(value ? constant(*value, small_type) : definition(v)->operands[0]);
  }
  Type result = type(op.results[0]);
  Type declared{result.dtype, small};
  ValueId inner = make(op.code, std::move(operands), op.attrs, op.code == OpCode::kCast ? &declared : nullptr);
  return make(OpCode::kBroadcast, {inner}, std::move(attrs), &result);
}

std::optional<int64_t> Simplifier::padded_dim(ValueId value) const {
  const Op* op = definition(value);
  if (op && op->code == OpCode::kPad) {
    const auto dim = op->attr<int64_t>("dim");
    const bool is_constant = std::holds_alternative<int64_t>(op->attrs.at("low")) &&
                             type(value).shape[static_cast<size_t>(dim)].is_constant();
    return is_constant ? std::optional(dim) : std::nullopt;
  }
  auto found = pad_sums_.find(value);
  return op && found != pad_sums_.end() ? std::optional(found->second) : std::nullopt;
}

/// The pads that a sum adds up, in order of their starts; empty if the op of a summand is hidden.
std::vector<Simplifier::Piece> Simplifier::pieces_of(const Op& sum, int64_t dim) const {
  std::vector<Piece> pieces;
  std::vector<ValueId> pending = {sum.operands[1], sum.operands[0]};
  while (!pending.empty()) {
    const Op* each = definition(pending.back());
    pending.pop_back();
    if (!each) return {};
    if (each->code == OpCode::kAdd) {
      pending.push_back(each->operands[1]);
      pending.push_back(each->operands[0]);
      continue;
    }
    int64_t low = each->attr<int64_t>("low");
    pieces.push_back(
        {low, low + type(each->operands[0]).shape[static_cast<size_t>(dim)].constant(), each->operands[0]});
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.start < b.start; });
  return pieces;
}

void Simplifier::find_inner_pad_sums(const Block& body) {
  ValueMap<uint32_t> uses;
  for_each_use(body, [&](ValueId v) { ++uses[v]; });
  ValueSet pads, sums;
  const auto visit = [&](const auto& self, const Block& block) -> void {
    for (const Op& op : block.ops) {
      for (const Block& region : op.regions) self(self, region);
      if (op.code == OpCode::kPad) pads.insert(op.results[0]);
      if (op.code != OpCode::kAdd) continue;
      sums.insert(op.results[0]);
      for (size_t i = 0; i < 2; ++i)
        if (const ValueId sum = op.operands[i];
            sums.contains(sum) && uses.get(sum) == 1 && pads.contains(op.operands[1 - i]))
          inner_pad_sums_.insert(sum);
    }
  };
  visit(visit, body);
}

/// A sum of pads along one dim whose inner ranges are equal or lie side by side becomes one pad of a concatenation.
ValueId Simplifier::sum_of_pads(const Op& op) {
  constexpr size_t kFew = 64;
  const std::optional<int64_t> dim = padded_dim(op.operands[0]);
  if (!dim || padded_dim(op.operands[1]) != dim) return kNoValue;
  if (inner_pad_sums_.contains(op.results[0])) {
    pad_sums_.emplace(op.results[0], *dim);
    return kNoValue;
  }
  std::vector<std::vector<Piece>> runs;
  std::map<int64_t, size_t> run_to;  // by end: the last run that ends there
  const std::vector<Piece> pieces = pieces_of(op, *dim);
  for (const Piece& piece : pieces) {
    auto same = run_to.find(piece.limit), before = run_to.find(piece.start);
    size_t run = runs.size();
    if (same != run_to.end() && runs[same->second].back().start == piece.start)
      run = same->second;
    else if (before != run_to.end())
      run = before->second;
    if (run == runs.size())
      runs.emplace_back();
    else
      run_to.erase(runs[run].back().limit);
    runs[run].push_back(piece);
    run_to[piece.limit] = run;
  }
  if (runs.size() == pieces.size() || runs.size() > kFew) {
    if (pieces.size() <= kFew) pad_sums_.emplace(op.results[0], *dim);  // a later pad may lie between these
    return kNoValue;
  }
  ValueId sum = kNoValue;
  for (const std::vector<Piece>& run : runs) {
    const ValueId pad = pad_of_pieces(op, *dim, run);
    sum = sum == kNoValue ? pad : make(OpCode::kAdd, {sum, pad});
  }
  return sum;
}

ValueId Simplifier::pad_of_pieces(const Op& op, int64_t dim, const std::vector<Piece>& pieces) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (i > 0 && pieces[i].start == pieces[i - 1].start && pieces[i].limit == pieces[i - 1].limit)
      parts.back() = make(OpCode::kAdd, {parts.back(), pieces[i].value});
    else
      parts.push_back(pieces[i].value);
  int64_t size = type(op.results[0]).shape[static_cast<size_t>(dim)].constant();
  ValueId joined = make(OpCode::kConcat, std::move(parts), {{"dim", dim}});
  return make(OpCode::kPad, {joined},
              {{"dim", dim}, {"low", pieces.front().start}, {"high", size - pieces.back().limit}});
}

}  // namespace weft::passes

// Rules for ops that move, reduce and multiply.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/simplification/simplifier.h"

namespace weft::passes {

using ir::Attrs;
using ir::Dim;
using ir::kNoValue;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

namespace {

bool is_identity(const Dims& dims) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return true;
}

/// Exchanges the last two dims and no others.
bool swaps_last_two(const Dims& perm) {
  size_t rank = perm.size();
  if (rank < 2) return false;
  Dims plain(perm);
  std::swap(plain[rank - 1], plain[rank - 2]);
  return is_identity(plain);
}

/// The op's dim and range, copied: definitions move when ops are made.
struct SliceAttrs {
  int64_t dim;
  Dim start, limit;
  explicit SliceAttrs(const Op& op)
      : dim(op.attr<int64_t>("dim")), start(size_attr(op, "start")), limit(size_attr(op, "limit")) {}
};

/// Whether start..limit-1 is, for all values of symbols, between `from` and `to`.
bool lies_within(const Dim& start, const Dim& limit, const Dim& from, const Dim& to) {
  return (start - from).is_never_negative() && (to - limit).is_never_negative();
}

/// Whether the ranges have nothing in common, whatever the symbols' values are.
bool are_disjoint(const Dim& start, const Dim& limit, const Dim& from, const Dim& to) {
  return (start - to).is_never_negative() || (from - limit).is_never_negative();
}

}  // namespace

ValueId Simplifier::broadcast(const Op& op) {
  ValueId x = op.operands[0];
  Type result = type(op.results[0]);
  if (type(x) == result) return x;
  if (std::optional<double> value = splat(x)) return constant(*value, result);
  const Op* inner = definition(x, OpCode::kBroadcast);
  if (!inner) return kNoValue;
  const Dims& outer_dims = op.attr<Dims>("dims");
  Dims dims;
  for (int64_t dim : inner->attr<Dims>("dims")) dims.push_back(outer_dims[static_cast<size_t>(dim)]);
  return make(OpCode::kBroadcast, {inner->operands[0]}, {{"dims", std::move(dims)}}, &result);
}

ValueId Simplifier::reshape(const Op& op) {
  ValueId x = op.operands[0];
  Type result = type(op.results[0]);
  if (type(x) == result) return x;
  if (std::optional<double> value = splat(x)) return constant(*value, result);
  const Op* inner = definition(x, OpCode::kReshape);
  return inner ? make(OpCode::kReshape, {inner->operands[0]}, {}, &result) : kNoValue;
}

ValueId Simplifier::transpose(const Op& op) {
  ValueId x = op.operands[0];
  const Dims& perm = op.attr<Dims>("perm");
  if (is_identity(perm)) return x;
  if (std::optional<double> value = splat(x)) return constant(*value, Type(type(op.results[0])));
  const Op* inner = definition(x);
  if (inner && inner->code == OpCode::kTranspose) {
    const Dims& first = inner->attr<Dims>("perm");
    Dims both;
    for (int64_t dim : perm) both.push_back(first[static_cast<size_t>(dim)]);
    return make(OpCode::kTranspose, {inner->operands[0]}, {{"perm", std::move(both)}});
  }
  if (inner && inner->code == OpCode::kOuter) return make(OpCode::kOuter, {inner->operands[1], inner->operands[0]});
  return kNoValue;
}

ValueId Simplifier::slice_of(const Op& op) {
  ValueId x = op.operands[0];
  SliceAttrs s(op);
  if (type(x) == type(op.results[0])) return x;
  if (std::optional<double> value = splat(x)) return constant(*value, Type(type(op.results[0])));
  const Op* inner = definition(x);
  if (!inner) return kNoValue;
  switch (inner->code) {
    case OpCode::kSlice: {
      SliceAttrs first(*inner);
      if (first.dim != s.dim) return kNoValue;
      return slice(inner->operands[0], s.dim, first.start + s.start, first.start + s.limit);
    }
    case OpCode::kConcat:
      return slice_of_concat(op, *inner);
    case OpCode::kBroadcast:
      return slice_of_broadcast(op, *inner);
    case OpCode::kPad:
      return slice_of_pad(op, *inner);
    default:
      return kNoValue;
  }
}

ValueId Simplifier::slice_of_concat(const Op& op, const Op& concat) {
  SliceAttrs s(op);
  int64_t dim = concat.attr<int64_t>("dim");
  std::vector<ValueId> operands = concat.operands;
  if (dim != s.dim) {
    if (operands.size() > 8) return kNoValue;
    for (ValueId& part : operands) part = slice(part, s.dim, s.start, s.limit);
    return make(OpCode::kConcat, std::move(operands), {{"dim", dim}});
  }
  // The slice takes each part as a whole, in a range, or not at all. If that depends on symbols, the slice stays.
  struct Taken {
    ValueId part;
    Dim from, to;
  };
  std::vector<Taken> taken;
  Dim start(0);
  for (ValueId part : operands) {
    const Dim limit = start + type(part).shape[static_cast<size_t>(dim)];
    if (!are_disjoint(s.start, s.limit, start, limit)) {
      const Dim from = (s.start - start).is_never_negative() ? s.start : start;
      const Dim to = (limit - s.limit).is_never_negative() ? s.limit : limit;
      if (!lies_within(from, to, start, limit) || !lies_within(from, to, s.start, s.limit)) return kNoValue;
      taken.push_back({part, from - start, to - start});
    }
    start = limit;
  }
  if (taken.empty()) return kNoValue;  // an empty slice
  std::vector<ValueId> parts;
  for (const Taken& each : taken) parts.push_back(slice(each.part, dim, each.from, each.to));
  return make(OpCode::kConcat, std::move(parts), {{"dim", dim}});
}

ValueId Simplifier::slice_of_broadcast(const Op& op, const Op& broadcast) {
  SliceAttrs s(op);
  Attrs attrs = broadcast.attrs;
  ValueId x = broadcast.operands[0];
  const Dims& dims = broadcast.attr<Dims>("dims");
  auto at = std::find(dims.begin(), dims.end(), s.dim);
  if (at != dims.end()) x = slice(x, at - dims.begin(), s.start, s.limit);
  Type result = type(op.results[0]);
  return make(OpCode::kBroadcast, {x}, std::move(attrs), &result);
}

ValueId Simplifier::slice_of_pad(const Op& op, const Op& pad) {
  SliceAttrs s(op);
  ValueId x = pad.operands[0];
  int64_t dim = pad.attr<int64_t>("dim");
  const Dim low = size_attr(pad, "low");
  Attrs attrs = pad.attrs;
  if (dim != s.dim) return make(OpCode::kPad, {slice(x, s.dim, s.start, s.limit)}, std::move(attrs));
  const Dim limit = low + type(x).shape[static_cast<size_t>(dim)];
  if (are_disjoint(s.start, s.limit, low, limit)) return constant(0, Type(type(op.results[0])));
  const Dim from = (s.start - low).is_never_negative() ? s.start : low;
  const Dim to = (limit - s.limit).is_never_negative() ? s.limit : limit;
  if (!lies_within(from, to, low, limit) || !lies_within(from, to, s.start, s.limit) ||
      !(to - from).is_never_negative())
    return kNoValue;
  ValueId inner = slice(x, dim, from - low, to - low);
  return make(OpCode::kPad, {inner}, {{"dim", dim}, {"low", as_attr(from - s.start)}, {"high", as_attr(s.limit - to)}});
}

ValueId Simplifier::pad(const Op& op) {
  ValueId x = op.operands[0];
  int64_t dim = op.attr<int64_t>("dim");
  Dim low = size_attr(op, "low"), high = size_attr(op, "high");
  if (low == Dim(0) && high == Dim(0)) return x;
  if (std::optional<double> value = splat(x); value && *value == 0 && !std::signbit(*value))
    return constant(0, Type(type(op.results[0])));
  const Op* inner = definition(x, OpCode::kPad);
  if (!inner || inner->attr<int64_t>("dim") != dim) return kNoValue;
  low = low + size_attr(*inner, "low");
  high = high + size_attr(*inner, "high");
  return make(OpCode::kPad, {inner->operands[0]}, {{"dim", dim}, {"low", as_attr(low)}, {"high", as_attr(high)}});
}

ValueId Simplifier::concat(Op& op) {
  if (op.operands.size() == 1) return op.operands[0];
  int64_t dim = op.attr<int64_t>("dim");
  // Operands that are concatenations are flattened; neighbouring slices of one value become one slice.
  std::vector<ValueId> parts;
  auto push = [&](ValueId v) {
    const Op* slice_v = definition(v, OpCode::kSlice);
    const Op* last = parts.empty() ? nullptr : definition(parts.back(), OpCode::kSlice);
    if (slice_v && last && slice_v->operands == last->operands) {
      SliceAttrs a(*last), b(*slice_v);
      if (a.dim == dim && b.dim == dim && a.limit == b.start) {
        parts.back() = slice(slice_v->operands[0], dim, a.start, b.limit);
        return;
      }
    }
    parts.push_back(v);
  };
  for (ValueId v : op.operands) {
    if (type(v).shape[static_cast<size_t>(dim)] == Dim(0)) continue;
    const Op* inner = definition(v, OpCode::kConcat);
    if (inner && inner->attr<int64_t>("dim") == dim)
      for (ValueId part : std::vector<ValueId>(inner->operands)) push(part);
    else
      push(v);
  }
  if (parts.empty()) return op.operands[0];
  if (parts.size() == 1) return parts[0];
  std::optional<double> first = splat(parts[0]);
  if (first && std::ranges::all_of(parts, [&](ValueId v) {
        std::optional<double> value = splat(v);
        return value && *value == *first && std::signbit(*value) == std::signbit(*first);
      }))
    return constant(*first, Type(type(op.results[0])));
  if (ValueId sum = concat_of_sums(op); sum != kNoValue) return sum;
  if (ValueId wide = concat_of_casts(parts, dim); wide != kNoValue) return wide;
  if (parts == op.operands) return kNoValue;
  return make(OpCode::kConcat, std::move(parts), {{"dim", dim}});
}

/// Parts that were widened from the same type are joined in the narrow type, so that a stack of them takes less memory.
ValueId Simplifier::concat_of_casts(const std::vector<ValueId>& parts, int64_t dim) {
  std::vector<ValueId> narrow;
  for (ValueId part : parts) {
    const Op* cast = definition(part, OpCode::kCast);
    if (!cast) return kNoValue;
    const DType from = type(cast->operands[0]).dtype;
    if (!is_floating(from) || size_of(from) >= size_of(type(part).dtype)) return kNoValue;
    if (!narrow.empty() && type(narrow[0]).dtype != from) return kNoValue;
    narrow.push_back(cast->operands[0]);
  }
  const DType wide = type(parts[0]).dtype;
  ValueId joined = make(OpCode::kConcat, std::move(narrow), {{"dim", dim}});
  const Type declared{wide, type(joined).shape};
  return make(OpCode::kCast, {joined}, {}, &declared);
}

/// A concatenation of the sums of neighbouring slices becomes one sum (a bias's gradient, which vjp makes gate by
/// gate).
ValueId Simplifier::concat_of_sums(const Op& op) {
  int64_t dim = op.attr<int64_t>("dim");
  const Op* first = definition(op.operands[0], OpCode::kReduceSum);
  if (!first) return kNoValue;
  Dims dims = first->attr<Dims>("dims");
  int64_t inner_dim = dim;  // the dim of the operand that becomes dim `dim` of the sum
  for (int64_t reduced : dims)
    if (reduced <= inner_dim) ++inner_dim;
  std::vector<ValueId> operands;
  ValueId whole = kNoValue;
  Dim next(0);
  for (ValueId v : op.operands) {
    const Op* sum = definition(v, OpCode::kReduceSum);
    if (!sum || sum->attr<Dims>("dims") != dims) return kNoValue;
    const Op* part = definition(sum->operands[0], OpCode::kSlice);
    if (!part || part->attr<int64_t>("dim") != inner_dim) return kNoValue;
    if (whole != kNoValue && (part->operands[0] != whole || size_attr(*part, "start") != next)) return kNoValue;
    whole = part->operands[0];
    next = size_attr(*part, "limit");
    operands.push_back(sum->operands[0]);
  }
  ValueId joined = make(OpCode::kConcat, std::move(operands), {{"dim", inner_dim}});
  return make(OpCode::kReduceSum, {joined}, {{"dims", std::move(dims)}});
}

ValueId Simplifier::reverse(const Op& op) {
  ValueId x = op.operands[0];
  if (splat(x)) return x;
  if (type(x).shape[static_cast<size_t>(op.attr<int64_t>("dim"))] == Dim(1)) return x;
  const Op* inner = definition(x, OpCode::kReverse);
  return inner && inner->attrs == op.attrs ? inner->operands[0] : kNoValue;
}

ValueId Simplifier::reduce(const Op& op) {
  ValueId x = op.operands[0];
  const Dims& dims = op.attr<Dims>("dims");
  Type result = type(op.results[0]);
  if (dims.empty()) return x;
  const Shape& shape = type(x).shape;
  if (std::ranges::all_of(dims, [&](int64_t dim) { return shape[static_cast<size_t>(dim)] == Dim(1); }))
    return make(OpCode::kReshape, {x}, {}, &result);
  std::optional<double> value = splat(x);
  if (op.code == OpCode::kReduceSum && value && *value == 0) return constant(0, result);
  const Op* inner = definition(x);
  if (inner && inner->code == op.code) {
    // Dims of the inner reduction, and the outer ones as dims of the inner operand.
    Dims all = inner->attr<Dims>("dims");
    Dims kept;
    for (int64_t i = 0; i < type(inner->operands[0]).rank(); ++i)
      if (!std::binary_search(all.begin(), all.end(), i)) kept.push_back(i);
    for (int64_t dim : dims) all.push_back(kept[static_cast<size_t>(dim)]);
    std::sort(all.begin(), all.end());
    return make(op.code, {inner->operands[0]}, {{"dims", std::move(all)}});
  }
  if (inner && inner->code == OpCode::kBroadcast) return reduce_of_broadcast(op, *inner);
  return kNoValue;
}

/// Moves a reduction before a broadcast where it reduces dims of the operand. A sum over n repetitions is a product
/// with n.
ValueId Simplifier::reduce_of_broadcast(const Op& op, const Op& broadcast) {
  Type result = type(op.results[0]);
  const Dims dims = op.attr<Dims>("dims");
  const Dims placed = broadcast.attr<Dims>("dims");
  ValueId x = broadcast.operands[0];
  Dims inner;        // reduced dims of x
  Dim repeated = 1;  // how often each element is summed
  Dims moved;        // the result dims of the dims of x that stay
  auto is_reduced = [&](int64_t dim) { return std::binary_search(dims.begin(), dims.end(), dim); };
  for (size_t i = 0; i < placed.size(); ++i)
    if (is_reduced(placed[i]))
      inner.push_back(static_cast<int64_t>(i));
    else
      moved.push_back(placed[i] - (std::lower_bound(dims.begin(), dims.end(), placed[i]) - dims.begin()));
  const Shape shape = type(op.operands[0]).shape;
  for (int64_t dim : dims)
    if (!std::binary_search(placed.begin(), placed.end(), dim)) repeated = repeated * shape[static_cast<size_t>(dim)];
  bool repeats = repeated != Dim(1);
  // An empty maximum is -inf, and a size that is not known cannot be multiplied with.
  if (repeats && !(op.code == OpCode::kReduceSum && repeated.is_constant())) return kNoValue;
  if (repeats && !is_floating(result.dtype)) return kNoValue;
  ValueId sum = make(op.code, {x}, {{"dims", std::move(inner)}});
  if (repeats && repeated == Dim(0)) return constant(0, result);
  if (repeats) sum = make(OpCode::kMul, {sum, constant(static_cast<double>(repeated.constant()), Type(type(sum)))});
  return make(OpCode::kBroadcast, {sum}, {{"dims", std::move(moved)}}, &result);
}

bool Simplifier::transpose_operands(Op& op) {
  bool any = false;
  for (size_t i = op.code == OpCode::kMatmul ? 1 : 0; i < 2; ++i) {
    const Op* inner = definition(op.operands[i], OpCode::kTranspose);
    if (!inner || !swaps_last_two(inner->attr<Dims>("perm"))) continue;
    const char* flag = i == 0 ? "transpose_a" : "transpose_b";
    bool now = !op.attr_or(flag, false);
    op.attrs.erase(flag);
    if (now) op.attrs.emplace(flag, true);
    op.operands[i] = inner->operands[0];
    any = true;
  }
  return any;
}

}  // namespace weft::passes

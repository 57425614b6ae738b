#include "ir/type_rule_checks.h"

namespace weft::ir::type_rules {

std::vector<Type> broadcast(const RuleInput& in) {
  in.allow({"dims"});
  const Type& operand = in.operand(0);
  const Type& type = in.declared_type();
  const auto& dims = in.integers("dims");
  check(type.dtype == operand.dtype, "broadcast: cannot change the dtype from {} to {}", to_string(operand),
        to_string(type));
  check(static_cast<int64_t>(dims.size()) == operand.rank(), "broadcast: dims lists {} dims, but the operand is {}",
        dims.size(), to_string(operand));
  check_dim_list(in, dims, type);
  for (size_t i = 0; i < dims.size(); ++i)
    check(operand.shape[i] == type.shape[static_cast<size_t>(dims[i])],
          "broadcast: dim {} of {} would become dim {} of {}, but the sizes differ", i, to_string(operand), dims[i],
          to_string(type));
  return {type};
}

std::vector<Type> reshape(const RuleInput& in) {
  in.allow({});
  const Type& type = in.declared_type();
  check(type.dtype == in.operand(0).dtype, "reshape: cannot change the dtype from {} to {}", to_string(in.operand(0)),
        to_string(type));
  Dim before = element_count(in.operand(0).shape);
  Dim after = element_count(type.shape);
  check(before == after, "reshape: {} has {} elements but {} has {}", to_string(in.operand(0)), to_string(before),
        to_string(type), to_string(after));
  return {type};
}

std::vector<Type> transpose(const RuleInput& in) {
  in.allow({"perm"});
  const Type& operand = in.operand(0);
  const auto& perm = in.integers("perm");
  check(static_cast<int64_t>(perm.size()) == operand.rank(), "transpose: perm lists {} dims, but the operand is {}",
        perm.size(), to_string(operand));
  std::vector<bool> seen(perm.size());
  Shape shape;
  for (int64_t dim : perm) {
    check(dim >= 0 && dim < operand.rank(), "transpose: dim {} is outside {}", dim, to_string(operand));
    check(!seen[static_cast<size_t>(dim)], "transpose: perm names dim {} twice", dim);
    seen[static_cast<size_t>(dim)] = true;
    shape.push_back(operand.shape[static_cast<size_t>(dim)]);
  }
  return {with_shape(operand, std::move(shape))};
}

std::vector<Type> slice(const RuleInput& in) {
  in.allow({"dim", "start", "limit"});
  Type type = in.operand(0);
  size_t dim = in.dim_of(type);
  const Dim start = in.size("start"), limit = in.size("limit");
  // Bounds that only some values of symbols make wrong are found at the call (ir/size_checks.h).
  const bool outside = start.is_always_negative() || (limit - start).is_always_negative() ||
                       (type.shape[dim] - limit).is_always_negative();
  check(!outside, "slice: {}..{} is outside dim {} of {}", to_string(start), to_string(limit), dim, to_string(type));
  type.shape[dim] = limit - start;
  return {type};
}

std::vector<Type> pad(const RuleInput& in) {
  in.allow({"dim", "low", "high"});
  Type type = in.operand(0);
  size_t dim = in.dim_of(type);
  const Dim low = in.size("low"), high = in.size("high");
  check(!low.is_always_negative() && !high.is_always_negative(),
        "pad: low and high must not be negative, but are {} and {}", to_string(low), to_string(high));
  const Dim size = type.shape[dim];
  if (low.is_constant() && high.is_constant() && size.is_constant()) {
    const int64_t before = low.constant(), behind = high.constant();
    check(before <= kMaxDim && behind <= kMaxDim - before && size.constant() <= kMaxDim - before - behind,
          "pad: {} + {} + {} is too large", before, size.constant(), behind);
  }
  type.shape[dim] = low + size + high;
  return {type};
}

std::vector<Type> concat(const RuleInput& in) {
  in.allow({"dim"});
  check(!in.op.operands.empty(), "concat: needs at least one operand");
  Type type = in.operand(0);
  size_t dim = in.dim_of(type);
  Dim size = type.shape[dim];
  for (size_t i = 1; i < in.op.operands.size(); ++i) {
    Type other = in.operand(i);
    check(other.rank() == type.rank(), "concat: ranks differ in {} and {}", to_string(in.operand(0)), to_string(other));
    const Dim more = other.shape[dim];
    other.shape[dim] = type.shape[dim];
    check(other == type, "concat: {} and {} differ in more than dim {}", to_string(in.operand(0)),
          to_string(in.operand(i)), dim);
    const Dim both = size + more;
    check(!both.is_constant() || both.constant() <= kMaxDim, "concat: {} + {} is too large", to_string(size),
          to_string(more));
    size = both;
  }
  type.shape[dim] = size;
  return {type};
}

std::vector<Type> reverse(const RuleInput& in) {
  in.allow({"dim"});
  in.dim_of(in.operand(0));
  return {in.operand(0)};
}

std::vector<Type> gather(const RuleInput& in) {
  in.allow({});
  const Type& table = in.operand(0);
  const Type& index = in.operand(1);
  check_rank_at_least(in, table, 1);
  check(is_integer(index.dtype), "gather: its index must be an integer type, not {}", to_string(index));
  Shape shape = index.shape;
  shape.insert(shape.end(), table.shape.begin() + 1, table.shape.end());
  return {with_shape(table, std::move(shape))};
}

std::vector<Type> scatter_add(const RuleInput& in) {
  in.allow({});
  const Type& index = in.operand(0);
  const Type& updates = in.operand(1);
  const Type& type = in.declared_type();
  check(is_integer(index.dtype), "scatter_add: its index must be an integer type, not {}", to_string(index));
  check_not_bool(in, updates);
  check(type.rank() >= 1 && type.dtype == updates.dtype, "scatter_add: {} cannot be summed into {}", to_string(updates),
        to_string(type));
  Shape expected = index.shape;
  expected.insert(expected.end(), type.shape.begin() + 1, type.shape.end());
  check(updates.shape == expected, "scatter_add: index {} into {} needs updates of {}, not {}", to_string(index),
        to_string(type), to_string(expected), to_string(updates));
  return {type};
}

std::vector<Type> scatter(const RuleInput& in) {
  in.allow({});
  const Type& table = in.operand(0);
  const Type& index = in.operand(1);
  const Type& updates = in.operand(2);
  check_rank_at_least(in, table, 1);
  check(is_integer(index.dtype), "scatter: its index must be an integer type, not {}", to_string(index));
  Shape expected = index.shape;
  expected.insert(expected.end(), table.shape.begin() + 1, table.shape.end());
  check(updates == with_shape(table, expected), "scatter: index {} into {} needs updates of {}, not {}",
        to_string(index), to_string(table), to_string(with_shape(table, expected)), to_string(updates));
  return {table};
}

namespace {

void check_start(const RuleInput& in, const Type& start) {
  check(start == Type{DType::kI64, {}}, "{}: its start must be i64[], not {}", in.name(), to_string(start));
}

/// Rows that only some values of symbols make too many are found at the call, with the start.
void check_rows_fit(const RuleInput& in, const Dim& rows, size_t dim) {
  check(!rows.is_always_negative() && !(in.operand(0).shape[dim] - rows).is_always_negative(),
        "{}: dim {} of {} has no {} rows", in.name(), dim, to_string(in.operand(0)), to_string(rows));
}

}  // namespace

std::vector<Type> dynamic_slice(const RuleInput& in) {
  in.allow({"dim", "size"});
  Type type = in.operand(0);
  const size_t dim = in.dim_of(type);
  const Dim size = in.size("size");
  check_start(in, in.operand(1));
  check_rows_fit(in, size, dim);
  type.shape[dim] = size;
  return {type};
}

std::vector<Type> dynamic_update(const RuleInput& in) {
  in.allow({"dim"});
  const Type& type = in.operand(0);
  const Type& update = in.operand(1);
  const size_t dim = in.dim_of(type);
  check_start(in, in.operand(2));
  Type expected = type;
  if (update.rank() == type.rank()) expected.shape[dim] = update.shape[dim];
  check(update == expected, "dynamic_update: {} and its update {} differ in more than dim {}", to_string(type),
        to_string(update), dim);
  check_rows_fit(in, update.shape[dim], dim);
  return {type};
}

}  // namespace weft::ir::type_rules

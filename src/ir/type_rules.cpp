#include "ir/type_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace weft::ir {

const Type& RuleInput::declared_type() const {
  check(declared.size() == 1, "{}: its type must be declared", name());
  return declared[0];
}

void RuleInput::allow(std::initializer_list<std::string_view> names) const {
  for (const auto& [attr, value] : op.attrs) {
    if (is_annotation(attr)) {
      const std::string misfit = annotation_misfit(op.code, attr, value);
      check(misfit.empty(), "{}", misfit);
      continue;
    }
    if (std::find(names.begin(), names.end(), attr) != names.end()) continue;
    std::string known;
    for (std::string_view each : names) known += (known.empty() ? "" : ", ") + std::string(each);
    user_error("{}: unknown attribute '{}'; it {}", name(), attr,
               known.empty() ? "has no attributes" : "knows " + known);
  }
}

namespace {

template <typename T>
const T& required(const RuleInput& in, std::string_view attr, std::string_view what) {
  auto it = in.op.attrs.find(attr);
  check(it != in.op.attrs.end(), "{}: needs the attribute '{}', {}", in.name(), attr, what);
  const T* value = std::get_if<T>(&it->second);
  check(value != nullptr, "{}: the attribute '{}' must be {}", in.name(), attr, what);
  return *value;
}

Type with_shape(const Type& type, Shape shape) { return Type{type.dtype, std::move(shape)}; }

void check_equal_operands(const RuleInput& in, size_t first = 0) {
  for (size_t i = first + 1; i < in.op.operands.size(); ++i)
    check(in.operand(i) == in.operand(first), "{}: its operands' types differ, {} and {}", in.name(),
          to_string(in.operand(first)), to_string(in.operand(i)));
}

void check_not_bool(const RuleInput& in, const Type& type) {
  check(type.dtype != DType::kBool, "{}: takes numbers, not {}", in.name(), to_string(type));
}

bool is_integer(DType dtype) { return !is_floating(dtype) && dtype != DType::kBool; }

void check_integer_value(const RuleInput& in, double value, DType dtype) {
  int bits = static_cast<int>(size_of(dtype)) * 8;
  bool is_unsigned = dtype == DType::kU8;
  double low = dtype == DType::kBool || is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
  double high = dtype == DType::kBool ? 2 : std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  check(value >= low && value < high && value == std::trunc(value), "{}: {} is no value of {}", in.name(), value,
        name_of(dtype));
}

/// dims: increasing indices of a type's dims.
void check_dim_list(const RuleInput& in, const std::vector<int64_t>& dims, const Type& type) {
  for (size_t i = 0; i < dims.size(); ++i) {
    check(dims[i] >= 0 && dims[i] < type.rank(), "{}: dim {} is outside {}", in.name(), dims[i], to_string(type));
    check(i == 0 || dims[i] > dims[i - 1], "{}: dims must increase, but {} follows {}", in.name(), dims[i],
          dims[i ? i - 1 : 0]);
  }
}

int64_t constant_dim(const RuleInput& in, const Type& type, size_t dim) {
  check(type.shape[dim].is_constant(), "{}: needs a constant dim {}, but it is {} in {}", in.name(), dim,
        to_string(type.shape[dim]), to_string(type));
  return type.shape[dim].constant();
}

void check_rank_at_least(const RuleInput& in, const Type& type, int64_t rank) {
  check(type.rank() >= rank, "{}: needs at least {} dims, but an operand is {}", in.name(), rank, to_string(type));
}

void check_same_dtype(const RuleInput& in) {
  check(in.operand(0).dtype == in.operand(1).dtype, "{}: its operands' dtypes differ, {} and {}", in.name(),
        to_string(in.operand(0)), to_string(in.operand(1)));
}

void check_inner(const RuleInput& in, const Dim& a, const Dim& b) {
  check(a == b, "{}: the operands' inner sizes differ, {} in {} and {} in {}", in.name(), to_string(a),
        to_string(in.operand(0)), to_string(b), to_string(in.operand(1)));
}

void check_leading(const RuleInput& in, int64_t trailing) {
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check(a.rank() == b.rank() && std::equal(a.shape.begin(), a.shape.end() - trailing, b.shape.begin()),
        "{}: the operands' leading dims differ in {} and {}", in.name(), to_string(a), to_string(b));
}

/// The panels of a pack: columns, groups and width of one.
struct PackLayout {
  int64_t groups, unroll, lanes, panels, width;
};

PackLayout pack_layout(const RuleInput& in, int64_t columns) {
  PackLayout layout{in.integer("groups"), in.integer("unroll"), in.integer("lanes"), 0, 0};
  constexpr int64_t kMost = 1 << 16;
  for (int64_t each : {layout.groups, layout.unroll, layout.lanes})
    check(each >= 1 && each <= kMost, "{}: groups, unroll and lanes must be from 1 to {}, not {}", in.name(), kMost,
          each);
  check(columns % layout.groups == 0, "{}: {} columns don't split into {} groups", in.name(), columns, layout.groups);
  int64_t step = layout.unroll * layout.lanes;
  int64_t n = columns / layout.groups;
  layout.panels = n / step + (n % step != 0);
  layout.width = layout.groups * step;
  return layout;
}

}  // namespace

int64_t RuleInput::integer(std::string_view attr) const { return required<int64_t>(*this, attr, "an integer"); }

Dim RuleInput::size(std::string_view attr) const {
  auto it = op.attrs.find(attr);
  if (it != op.attrs.end())
    if (const Dim* dim = std::get_if<Dim>(&it->second)) return *dim;
  return required<int64_t>(*this, attr, "an integer or a dim");
}

const std::vector<int64_t>& RuleInput::integers(std::string_view attr) const {
  return required<std::vector<int64_t>>(*this, attr, "a list of integers");
}

bool RuleInput::flag(std::string_view attr) const {
  return op.has(attr) && required<bool>(*this, attr, "true or false");
}

size_t RuleInput::dim_of(const Type& type) const {
  int64_t dim = integer("dim");
  check(dim >= 0 && dim < type.rank(), "{}: dim {} is outside {}", name(), dim, to_string(type));
  return static_cast<size_t>(dim);
}

namespace type_rules {

std::vector<Type> constant(const RuleInput& in) {
  in.allow({"value"});
  double value = required<double>(in, "value", "a number");
  const Type& type = in.declared_type();
  if (!is_floating(type.dtype)) check_integer_value(in, value, type.dtype);
  return {type};
}

std::vector<Type> iota(const RuleInput& in) {
  in.allow({"dim"});
  const Type& type = in.declared_type();
  check_not_bool(in, type);
  in.dim_of(type);
  return {type};
}

std::vector<Type> size(const RuleInput& in) {
  in.allow({"of"});
  required<Dim>(in, "of", "a dim");
  const Type& type = in.declared_type();
  check_not_bool(in, type);
  check(type.rank() == 0, "size: is one number, not {}", to_string(type));
  return {type};
}

std::vector<Type> same(const RuleInput& in) {
  in.allow({});
  check_equal_operands(in);
  if (in.op.code != OpCode::kCopy && in.op.code != OpCode::kStopGradient) check_not_bool(in, in.operand(0));
  return {in.operand(0)};
}

std::vector<Type> floating(const RuleInput& in) {
  in.allow({});
  check_equal_operands(in);
  check(is_floating(in.operand(0).dtype), "{}: takes f16, bf16, f32 or f64, not {}", in.name(),
        to_string(in.operand(0)));
  return {in.operand(0)};
}

std::vector<Type> logical(const RuleInput& in) {
  in.allow({});
  check_equal_operands(in);
  check(!is_floating(in.operand(0).dtype), "{}: takes bool or integers, not {}", in.name(), to_string(in.operand(0)));
  return {in.operand(0)};
}

std::vector<Type> cast(const RuleInput& in) {
  in.allow({});
  const Type& type = in.declared_type();
  check(type.shape == in.operand(0).shape, "cast: changes the dtype only, but {} would become {}",
        to_string(in.operand(0)), to_string(type));
  return {type};
}

std::vector<Type> compare(const RuleInput& in) {
  in.allow({});
  check_equal_operands(in);
  return {Type{DType::kBool, in.operand(0).shape}};
}

std::vector<Type> select(const RuleInput& in) {
  in.allow({});
  check_equal_operands(in, 1);
  check(in.operand(0).dtype == DType::kBool, "select: its condition must be bool, not {}", to_string(in.operand(0)));
  check(in.operand(0).shape == in.operand(1).shape, "select: its condition is {} but its values are {}",
        to_string(in.operand(0)), to_string(in.operand(1)));
  return {in.operand(1)};
}

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
  // What only some values of symbols make wrong is found at the call (ir/size_checks.h).
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

std::vector<Type> reduce(const RuleInput& in) {
  in.allow({"dims"});
  const Type& operand = in.operand(0);
  check_not_bool(in, operand);
  const auto& dims = in.integers("dims");
  check_dim_list(in, dims, operand);
  Shape shape;
  for (int64_t i = 0; i < operand.rank(); ++i)
    if (!std::binary_search(dims.begin(), dims.end(), i)) shape.push_back(operand.shape[static_cast<size_t>(i)]);
  return {with_shape(operand, std::move(shape))};
}

std::vector<Type> matmul(const RuleInput& in) {
  in.allow({"transpose_b"});
  check_same_dtype(in);
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 1);
  check(b.rank() == 2, "matmul: its second operand must have 2 dims, but is {}", to_string(b));
  bool transposed = in.flag("transpose_b");
  check_inner(in, a.shape.back(), b.shape[transposed ? 1 : 0]);
  Shape shape = a.shape;
  shape.back() = b.shape[transposed ? 0 : 1];
  return {with_shape(a, std::move(shape))};
}

std::vector<Type> outer(const RuleInput& in) {
  in.allow({});
  check_same_dtype(in);
  check_not_bool(in, in.operand(0));
  check_rank_at_least(in, in.operand(0), 1);
  check_rank_at_least(in, in.operand(1), 1);
  check_leading(in, 1);
  return {with_shape(in.operand(0), {in.operand(0).shape.back(), in.operand(1).shape.back()})};
}

std::vector<Type> batch_matmul(const RuleInput& in) {
  in.allow({"transpose_a", "transpose_b"});
  check_same_dtype(in);
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 2);
  check_rank_at_least(in, b, 2);
  check_leading(in, 2);
  size_t rank = a.shape.size();
  size_t at = in.flag("transpose_a") ? 1 : 0;
  size_t bt = in.flag("transpose_b") ? 1 : 0;
  check_inner(in, a.shape[rank - 1 - at], b.shape[rank - 2 + bt]);
  Shape shape = a.shape;
  shape[rank - 2] = a.shape[rank - 2 + at];
  shape[rank - 1] = b.shape[rank - 1 - bt];
  return {with_shape(a, std::move(shape))};
}

namespace {

/// The shape of the panels of `layout` for an inner size of k. In pairs, two rows of the weights lie side by side.
Shape panel_shape(const RuleInput& in, const PackLayout& layout, const Dim& k) {
  if (!in.flag("pairs")) return {Dim(layout.panels), k, Dim(layout.width)};
  check(k.is_constant(), "{}: in pairs its inner size must be a number", in.name());
  return {Dim(layout.panels), Dim(k.constant() / 2 + k.constant() % 2), Dim(2 * layout.width)};
}

}  // namespace

std::vector<Type> pack(const RuleInput& in) {
  in.allow({"groups", "unroll", "lanes", "transpose_b", "pairs"});
  const Type& b = in.operand(0);
  check_not_bool(in, b);
  check(b.rank() == 2, "pack: its operand must have 2 dims, but is {}", to_string(b));
  check(!in.flag("pairs") || b.dtype == DType::kBF16, "pack: only bf16 is packed in pairs, not {}", to_string(b));
  bool transposed = in.flag("transpose_b");
  PackLayout layout = pack_layout(in, constant_dim(in, b, transposed ? 0 : 1));
  return {with_shape(b, panel_shape(in, layout, b.shape[transposed ? 1 : 0]))};
}

std::vector<Type> matmul_packed(const RuleInput& in) {
  in.allow({"groups", "unroll", "lanes", "n", "pairs"});
  const Type& a = in.operand(0);
  const Type& packed = in.operand(1);
  bool pairs = in.flag("pairs");
  if (pairs)
    check(packed.dtype == DType::kBF16 && (a.dtype == DType::kBF16 || a.dtype == DType::kF32),
          "matmul_packed: pairs are bf16, and f32 or bf16 beside them, not {} and {}", to_string(a), to_string(packed));
  else
    check_same_dtype(in);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 1);
  int64_t n = in.integer("n");
  check(n >= 0 && n <= kMaxDim, "matmul_packed: n is {}", n);
  Shape expected = panel_shape(in, pack_layout(in, n), a.shape.back());
  check(packed.shape == expected, "matmul_packed: {} with n = {} needs panels of {}, not {}", to_string(a), n,
        to_string(expected), to_string(packed));
  Type result = a;
  result.shape.back() = Dim(n);
  if (pairs) result.dtype = DType::kF32;
  return {std::move(result)};
}

namespace {

std::optional<Ragged> ragged_of(const RuleInput& in, const Dim& length) {
  if (!in.op.has("rows") && !in.op.has("packed")) return std::nullopt;
  const Dim& rows = required<Dim>(in, "rows", "a symbol");
  const Dim& packed = required<Dim>(in, "packed", "a symbol");
  check(rows.is_symbol() && packed.is_symbol(), "scan: ragged rows are {} of {}, but both must be symbols",
        to_string(rows), to_string(packed));
  auto has = [&](const Dim& dim) { return dim.mentions(rows.name()); };
  check(packed != length && !has(packed) && !has(length),
        "scan: the rows {}, the packed rows {} and the length {} of a ragged scan must be different", to_string(rows),
        to_string(packed), to_string(length));
  check(!in.op.operands.empty(), "scan: a ragged scan needs its batch sizes as an operand");
  Ragged ragged{in.op.operands.back(), rows, packed};
  const Type& type = in.program.type(ragged.batch_sizes);
  check(type == Type{DType::kI64, {length}}, "scan: batch sizes must be {}, not {}",
        to_string(Type{DType::kI64, {length}}), to_string(type));
  return ragged;
}

/// In a ragged region every step has another number of rows. Code generation lays memory out for a leading dim of rows
/// only: it refuses `f32[2*B,8]` and `f32[8,B]`.
void check_rows(const Program& program, const Block& region, const Ragged& ragged) {
  auto check_value = [&](ValueId id) {
    Type type = program.type(id);
    if (has_rows(type, ragged)) type.shape.erase(type.shape.begin());
    check(!mentions_rows(type, ragged),
          "scan: in a ragged scan its rows {} may only be a leading dim, but a value is {}", to_string(ragged.rows),
          to_string(program.type(id)));
  };
  for (ValueId id : region.args) check_value(id);
  for (const Op& op : region.ops) {
    for (ValueId id : op.operands) check_value(id);
    for (ValueId id : op.results) check_value(id);
    for (const auto& [name, attr] : op.attrs)
      if (const Dim* dim = std::get_if<Dim>(&attr))
        check(!mentions_rows(Type{DType::kF32, {*dim}}, ragged),
              "scan: the rows {} of a ragged scan can't be the {} of one inside", to_string(ragged.rows), name);
    for (const Block& inner : op.regions) check_rows(program, inner, ragged);
  }
  for (ValueId id : region.results) check_value(id);
}

void check_carries(const RuleInput& in, const Block& region, size_t carries) {
  for (size_t i = 0; i < carries; ++i) {
    const Type& init = in.operand(i);
    const Type& arg = in.program.type(region.args[i]);
    const Type& out = in.program.type(region.results[i]);
    check(arg == init, "scan: carry {} begins as {}, but the region takes {}", i, to_string(init), to_string(arg));
    check(out == arg, "scan: carry {} comes in as {} but goes out as {}", i, to_string(arg), to_string(out));
  }
}

void check_xs(const RuleInput& in, const Block& region, size_t carries, const Dim& length,
              const std::optional<Ragged>& ragged) {
  for (size_t i = carries; i < region.args.size(); ++i) {
    const Type& x = in.operand(i);
    bool packed = ragged && x.rank() >= 1 && x.shape[0] == ragged->packed;
    check(packed || (x.rank() >= 1 && x.shape[0] == length), "scan: its length is {}{}, but an xs operand is {}",
          to_string(length), ragged ? " and its packed rows are " + to_string(ragged->packed) : "", to_string(x));
    check(!ragged || !mentions_rows(x, *ragged),
          "scan: rows of a ragged scan come packed as {}, but an xs operand is {}",
          ragged ? to_string(ragged->packed) : "", to_string(x));
    Type step = step_of(x, ragged);
    check(in.program.type(region.args[i]) == step, "scan: a step of {} is {}, but the region takes {}", to_string(x),
          to_string(step), to_string(in.program.type(region.args[i])));
  }
}

}  // namespace

std::vector<Type> scan(const RuleInput& in) {
  in.allow({"carries", "reverse", "length", "rows", "packed"});
  in.flag("reverse");
  const Dim& length = required<Dim>(in, "length", "a dim");
  std::optional<Ragged> ragged = ragged_of(in, length);
  int64_t count = in.integer("carries");
  check(in.op.regions.size() == 1, "scan: needs one region, but has {}", in.op.regions.size());
  const Block& region = in.op.regions[0];
  size_t operands = in.op.operands.size() - (ragged ? 1 : 0);
  check(count >= 0 && count <= static_cast<int64_t>(operands), "scan: {} carries, but {} operands", count, operands);
  check(region.args.size() == operands, "scan: has {} operands, but its region takes {}", operands, region.args.size());
  auto carries = static_cast<size_t>(count);
  check(region.results.size() >= carries, "scan: {} carries, but the region yields {} values", carries,
        region.results.size());
  check_carries(in, region, carries);
  check_xs(in, region, carries, length, ragged);
  if (ragged) check_rows(in.program, region, *ragged);
  std::vector<Type> types;
  for (size_t i = 0; i < region.results.size(); ++i) {
    const Type& type = in.program.type(region.results[i]);
    types.push_back(i < carries ? type : stacked(type, length, ragged));
  }
  return types;
}

std::vector<Type> cond(const RuleInput& in) {
  in.allow({});
  check(in.operand(0) == Type{DType::kBool, {}}, "cond: its predicate must be bool[], not {}",
        to_string(in.operand(0)));
  check(in.op.regions.size() == 2, "cond: needs two regions, but has {}", in.op.regions.size());
  const Block& yes = in.op.regions[0];
  const Block& no = in.op.regions[1];
  check(yes.args.empty() && no.args.empty(), "cond: its regions take no arguments");
  check(yes.results.size() == no.results.size(), "cond: one region yields {} values, the other {}", yes.results.size(),
        no.results.size());
  std::vector<Type> types;
  for (size_t i = 0; i < yes.results.size(); ++i) {
    const Type& type = in.program.type(yes.results[i]);
    const Type& other = in.program.type(no.results[i]);
    check(type == other, "cond: value {} is {} in one region and {} in the other", i, to_string(type),
          to_string(other));
    types.push_back(type);
  }
  return types;
}

std::vector<Type> while_loop(const RuleInput& in) {
  in.allow({});
  check(in.op.regions.size() == 2, "while: needs two regions, but has {}", in.op.regions.size());
  const Block& condition = in.op.regions[0];
  const Block& body = in.op.regions[1];
  size_t carries = in.op.operands.size();
  check(condition.results.size() == 1 && in.program.type(condition.results[0]) == Type{DType::kBool, {}},
        "while: its condition must yield one bool[]{}",
        condition.results.size() == 1 ? ", not " + to_string(in.program.type(condition.results[0]))
                                      : fmt::format(", not {} values", condition.results.size()));
  check(condition.args.size() == carries && body.args.size() == carries && body.results.size() == carries,
        "while: {} carries go in, but its regions take {} and {} and yield {}", carries, condition.args.size(),
        body.args.size(), body.results.size());
  std::vector<Type> types;
  for (size_t i = 0; i < carries; ++i) {
    const Type& init = in.operand(i);
    for (const Block& region : in.op.regions)
      check(in.program.type(region.args[i]) == init, "while: carry {} begins as {}, but a region takes {}", i,
            to_string(init), to_string(in.program.type(region.args[i])));
    const Type& out = in.program.type(body.results[i]);
    check(out == init, "while: carry {} comes in as {} but goes out as {}", i, to_string(init), to_string(out));
    types.push_back(init);
  }
  return types;
}

std::vector<Type> external(const RuleInput& in) {
  in.allow({"call", "vjp"});
  required<std::string>(in, "call", "a text");
  if (in.op.has("vjp")) required<std::string>(in, "vjp", "a text");
  check(!in.declared.empty(), "extern: the types of its results must be declared");
  return in.declared;
}

std::vector<Type> custom_vjp(const RuleInput& in) {
  in.allow({"inputs", "vjp"});
  required<std::string>(in, "vjp", "a text");
  const int64_t inputs = in.integer("inputs");
  const auto operands = static_cast<int64_t>(in.op.operands.size());
  check(inputs >= 0 && inputs < operands, "custom_vjp: {} inputs, but {} operands", inputs, operands);
  std::vector<Type> types;
  for (int64_t i = inputs; i < operands; ++i) types.push_back(in.operand(static_cast<size_t>(i)));
  return types;
}

}  // namespace type_rules

std::vector<Type> infer_types(const Program& program, const Op& op, const std::vector<Type>& declared) {
  static constexpr type_rules::Rule kRules[] = {
#define WEFT_OP(Enum, text, arity, Class, type_rule, ...) type_rules::type_rule,
#include "ir/ops.def"
  };
  const OpInfo& row = info(op.code);
  check(row.arity < 0 || op.operands.size() == static_cast<size_t>(row.arity), "{}: takes {} operand{}, not {}",
        row.name, row.arity, row.arity == 1 ? "" : "s", op.operands.size());
  check(op.regions.empty() || row.op_class == OpClass::kRegion, "{}: has no region", row.name);
  return kRules[static_cast<size_t>(op.code)](RuleInput{program, op, declared});
}

}  // namespace weft::ir

#include "ir/type_rules.h"

#include <algorithm>
#include <limits>

#include "ir/type_rule_checks.h"

namespace weft::ir {

using type_rules::required;

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
  in.allow({kExcessPrecision});
  in.flag(kExcessPrecision);
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

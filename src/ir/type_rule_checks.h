#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ir/type_rules.h"

/// Checks that type rules share. Each throws the user's error, which names the op and what was given to it.
namespace weft::ir::type_rules {

template <typename T>
const T& required(const RuleInput& in, std::string_view attr, std::string_view what) {
  auto it = in.op.attrs.find(attr);
  check(it != in.op.attrs.end(), "{}: needs the attribute '{}', {}", in.name(), attr, what);
  const T* value = std::get_if<T>(&it->second);
  check(value != nullptr, "{}: the attribute '{}' must be {}", in.name(), attr, what);
  return *value;
}

inline Type with_shape(const Type& type, Shape shape) { return Type{type.dtype, std::move(shape)}; }

inline void check_equal_operands(const RuleInput& in, size_t first = 0) {
  for (size_t i = first + 1; i < in.op.operands.size(); ++i)
    check(in.operand(i) == in.operand(first), "{}: its operands' types differ, {} and {}", in.name(),
          to_string(in.operand(first)), to_string(in.operand(i)));
}

inline void check_not_bool(const RuleInput& in, const Type& type) {
  check(type.dtype != DType::kBool, "{}: takes numbers, not {}", in.name(), to_string(type));
}

inline bool is_integer(DType dtype) { return !is_floating(dtype) && dtype != DType::kBool; }

inline void check_integer_value(const RuleInput& in, double value, DType dtype) {
  int bits = static_cast<int>(size_of(dtype)) * 8;
  bool is_unsigned = dtype == DType::kU8;
  double low = dtype == DType::kBool || is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
  double high = dtype == DType::kBool ? 2 : std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  check(value >= low && value < high && value == std::trunc(value), "{}: {} is no value of {}", in.name(), value,
        name_of(dtype));
}

/// dims: increasing indices of a type's dims.
inline void check_dim_list(const RuleInput& in, const std::vector<int64_t>& dims, const Type& type) {
  for (size_t i = 0; i < dims.size(); ++i) {
    check(dims[i] >= 0 && dims[i] < type.rank(), "{}: dim {} is outside {}", in.name(), dims[i], to_string(type));
    check(i == 0 || dims[i] > dims[i - 1], "{}: dims must increase, but {} follows {}", in.name(), dims[i],
          dims[i ? i - 1 : 0]);
  }
}

inline int64_t constant_dim(const RuleInput& in, const Type& type, size_t dim) {
  check(type.shape[dim].is_constant(), "{}: needs a constant dim {}, but it is {} in {}", in.name(), dim,
        to_string(type.shape[dim]), to_string(type));
  return type.shape[dim].constant();
}

inline void check_rank_at_least(const RuleInput& in, const Type& type, int64_t rank) {
  check(type.rank() >= rank, "{}: needs at least {} dims, but an operand is {}", in.name(), rank, to_string(type));
}

inline void check_same_dtype(const RuleInput& in) {
  check(in.operand(0).dtype == in.operand(1).dtype, "{}: its operands' dtypes differ, {} and {}", in.name(),
        to_string(in.operand(0)), to_string(in.operand(1)));
}

inline void check_inner(const RuleInput& in, const Dim& a, const Dim& b) {
  check(a == b, "{}: the operands' inner sizes differ, {} in {} and {} in {}", in.name(), to_string(a),
        to_string(in.operand(0)), to_string(b), to_string(in.operand(1)));
}

inline void check_leading(const RuleInput& in, int64_t trailing) {
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check(a.rank() == b.rank() && std::equal(a.shape.begin(), a.shape.end() - trailing, b.shape.begin()),
        "{}: the operands' leading dims differ in {} and {}", in.name(), to_string(a), to_string(b));
}

}  // namespace weft::ir::type_rules

#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace weft::ir {

/// The input of a type rule: an op of the right arity, its operands' types, and the types declared for its results.
struct RuleInput {
  const Program& program;
  const Op& op;
  const std::vector<Type>& declared;

  std::string_view name() const { return info(op.code).name; }
  const Type& operand(size_t i) const { return program.type(op.operands[i]); }

  /// The declared type; user's error when there is none.
  const Type& declared_type() const;
  /// User's error when the op has an attribute that is not listed (annotations apart).
  void allow(std::initializer_list<std::string_view> names) const;
  /// A required attribute; user's error unless it is an integer / a list of integers / a number.
  int64_t integer(std::string_view attr) const;
  /// A required attribute: an integer, or a dim.
  Dim size(std::string_view attr) const;
  const std::vector<int64_t>& integers(std::string_view attr) const;
  /// An optional attribute, false when absent; user's error unless it is a bool.
  bool flag(std::string_view attr) const;
  /// The attribute `dim`: an index of one of the type's dims.
  size_t dim_of(const Type& type) const;
};

namespace type_rules {

using Rule = std::vector<Type> (*)(const RuleInput&);

/// The functions that ops.def names; several ops may share one.
#define WEFT_OP(Enum, text, arity, Class, type_rule, ...) std::vector<Type> type_rule(const RuleInput& in);
#include "ir/ops.def"

}  // namespace type_rules
}  // namespace weft::ir

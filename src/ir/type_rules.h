#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace weft::ir {

/// What a type rule sees: an op of the right arity, its operands' types, and the types declared for its results.
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
  /// An attribute that must be there; user's error unless it is an integer / a list of integers / a number.
  int64_t integer(std::string_view attr) const;
  /// An attribute that must be there: an integer, or a dim.
  Dim size(std::string_view attr) const;
  const std::vector<int64_t>& integers(std::string_view attr) const;
  /// An attribute that is false when absent; user's error unless it is a bool.
  bool flag(std::string_view attr) const;
  /// The attribute `dim`: an index of one of the type's dims.
  size_t dim_of(const Type& type) const;
};

namespace type_rules {

using Rule = std::vector<Type> (*)(const RuleInput&);

std::vector<Type> constant(const RuleInput& in);
std::vector<Type> iota(const RuleInput& in);
std::vector<Type> size(const RuleInput& in);
std::vector<Type> same(const RuleInput& in);
std::vector<Type> floating(const RuleInput& in);
std::vector<Type> logical(const RuleInput& in);
std::vector<Type> cast(const RuleInput& in);
std::vector<Type> compare(const RuleInput& in);
std::vector<Type> select(const RuleInput& in);
std::vector<Type> broadcast(const RuleInput& in);
std::vector<Type> reshape(const RuleInput& in);
std::vector<Type> transpose(const RuleInput& in);
std::vector<Type> slice(const RuleInput& in);
std::vector<Type> pad(const RuleInput& in);
std::vector<Type> concat(const RuleInput& in);
std::vector<Type> reverse(const RuleInput& in);
std::vector<Type> gather(const RuleInput& in);
std::vector<Type> scatter_add(const RuleInput& in);
std::vector<Type> scatter(const RuleInput& in);
std::vector<Type> reduce(const RuleInput& in);
std::vector<Type> matmul(const RuleInput& in);
std::vector<Type> outer(const RuleInput& in);
std::vector<Type> batch_matmul(const RuleInput& in);
std::vector<Type> pack(const RuleInput& in);
std::vector<Type> matmul_packed(const RuleInput& in);
std::vector<Type> scan(const RuleInput& in);
std::vector<Type> cond(const RuleInput& in);
std::vector<Type> while_loop(const RuleInput& in);
std::vector<Type> external(const RuleInput& in);
std::vector<Type> custom_vjp(const RuleInput& in);

}  // namespace type_rules
}  // namespace weft::ir

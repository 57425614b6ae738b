#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/builder.h"

namespace weft::capture {

/// A value of the region being built.
struct Value {
  ir::ValueId id;
};

/// An argument that the graph has but the region can't know: a symbolic number, a dtype, a memory format. What such
/// arguments decide is in the result's type already, or the op is refused.
struct Unknown {};

/// An argument of an ATen call; monostate is None. A list of tensors may have None among them.
using Argument = std::variant<std::monostate, Unknown, bool, int64_t, double, std::string, Value, std::vector<int64_t>,
                              std::vector<Value>, std::vector<std::optional<Value>>>;

/// A size as the graph has it: a number times symbols, in any order.
using Size = std::pair<int64_t, std::vector<std::string>>;
ir::Type make_type(std::string_view dtype, const std::vector<Size>& sizes);

/// Turns a region of an ATen graph into one program: the caller names its inputs, then its nodes in an order in which
/// each comes after what it reads, then its outputs. Every function throws the user's error on what the IR can't
/// express; the region is then of no further use.
class Region {
 public:
  Value input(const ir::Type& type);
  /// The results of a called program, spliced in: its symbols become what the inputs have in their place.
  std::vector<Value> inline_program(std::string_view text, std::span<const Value> inputs);
  /// One ATen op with one result of type `result`, such as "aten.add.Tensor", all its arguments in the schema's order.
  Value aten(std::string_view op, const std::vector<Argument>& arguments, const ir::Type& result);
  /// An operator that PyTorch runs (ops.def: extern): `call` names it with its arguments, `vjp` is its derivative's
  /// program or empty. Results of these types.
  std::vector<Value> external(std::string call, std::string vjp, std::span<const Value> operands,
                              const std::vector<ir::Type>& results);
  /// The values, with `vjp` as their derivative by the inputs (ops.def: custom_vjp).
  std::vector<Value> custom_vjp(std::string vjp, std::span<const Value> inputs, std::span<const Value> values);
  /// The program's text, verified.
  std::string finish(std::span<const Value> outputs);

  const ir::Type& type(Value value) const { return program_.type(value.id); }

 private:
  ir::Program program_;
};

/// Whether each result's element is a function of the inputs' elements at the same place and of nothing else.
bool is_elementwise(std::string_view text);

/// The program with only those of its outputs for which keep[i] holds.
std::string keep_outputs(std::string_view text, const std::vector<bool>& keep);

}  // namespace weft::capture

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/builder.h"

namespace weft::importer {

/// A value of the region being built.
struct Value {
  ir::ValueId id;
};

/// An argument whose value the region can't know: a symbolic number, a dtype, a memory format. If it only decides the
/// result's type, which is known, it does no harm; otherwise the op is refused.
struct Unknown {};

/// Minus a size, by which a place is counted from the end at all sizes. Of a sum such as 40 - T, the sign wouldn't say
/// that: it's a place from the front, whatever its sign is.
struct Negative {
  ir::Dim size;
};

/// An argument of an ATen call; monostate is None. An integer that depends on sizes is a dim, or Negative; in a list it
/// is a dim. A list of tensors may have None among them.
using Argument =
    std::variant<std::monostate, Unknown, bool, int64_t, double, std::string, Value, std::vector<int64_t>,
                 std::vector<Value>, std::vector<std::optional<Value>>, ir::Dim, Negative, std::vector<ir::Dim>>;

/// A size as the graph has it: a number times symbols, in any order.
using Size = std::pair<int64_t, std::vector<std::string>>;
ir::Type make_type(std::string_view dtype, const std::vector<Size>& sizes);

/// Turns a region of an ATen graph into one program. The caller gives its inputs, then its nodes in topological order,
/// then its outputs. Every function throws the user's error for anything that the IR can't express, after which the
/// region is of no further use.
class Region {
 public:
  Value input(const ir::Type& type);
  Value zeros(const ir::Type& type);
  /// Whether the program can be inlined for these inputs (ir/inline.h).
  bool can_inline(const ir::Program& program, std::span<const Value> inputs) const;
  /// Inlines a program and returns its results. Its symbols become the sizes that the inputs have in the symbols'
  /// place.
  std::vector<Value> inline_program(const ir::Program& program, std::span<const Value> inputs);
  /// One ATen op with one result of type `result`, such as "aten.add.Tensor", all its arguments in the schema's order.
  Value aten(std::string_view op, const std::vector<Argument>& arguments, const ir::Type& result);
  /// The op `extern` (docs/ir.md), with results of these types. `call` is the operator with its arguments. `vjp` is the
  /// program of its derivative; empty without one.
  std::vector<Value> external(std::string call, std::string vjp, std::span<const Value> operands,
                              const std::vector<ir::Type>& results);
  /// The attributes of `custom_vjp` (docs/ir.md), which describe the derivative.
  struct OwnDerivative {
    std::string vjp;
    bool linear = false;  ///< whether it is linear in the cotangents
    bool hook = false;    ///< whether the first input is the value itself
  };
  /// The op `custom_vjp`: the values, with their own derivative by the inputs.
  std::vector<Value> custom_vjp(OwnDerivative derivative, std::span<const Value> inputs, std::span<const Value> values);
  /// `value`, with a derivative that is an error with this message.
  Value refusing(Value value, std::string message);
  /// The number of ops so far; below, adds a note with this name and number to all ops from the first on.
  size_t ops() const { return program_.body.ops.size(); }
  void note(size_t first, std::string_view name, int64_t number);
  /// Returns the program. The region is of no further use.
  ir::Program finish(std::span<const Value> outputs);

  /// Calls `emit` with a builder that appends to the region.
  template <typename Emit>
  auto build(const Emit& emit) {
    ir::Builder builder(program_, program_.body);
    return emit(builder);
  }

  const ir::Type& type(Value value) const { return program_.type(value.id); }

 private:
  ir::Program program_;
};

/// Whether each result's element is a function of the inputs' elements at the same place and of nothing else.
bool is_elementwise(const ir::Program& program);

/// Whether a product's second operand is a matrix whose sizes are not all numbers.
bool has_symbolic_weights(const ir::Program& program);

/// The program with only those outputs i for which keep[i] holds.
ir::Program keep_outputs(ir::Program program, const std::vector<bool>& keep);

}  // namespace weft::importer

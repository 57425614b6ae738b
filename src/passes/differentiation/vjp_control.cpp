#include <algorithm>
#include <array>

#include "base/external.h"
#include "ir/inline.h"
#include "ir/text/parser.h"
#include "passes/differentiation/vjp_rules.h"

namespace weft::passes::vjp_rules {
namespace {

using ir::Block;
using ir::Op;
using ir::Program;
using ir::ValueId;

/// One region of a cond, recomputed and differentiated.
class Branch {
 public:
  /// `results`: the results of the cond, whose cotangents `outer` knows.
  Branch(Adjoints& outer, const Block& region, const std::vector<ValueId>& results)
      : inner_(outer.program(), adjoint_, outer.varied(), outer.keep()) {
    Substitution map;
    again_ = clone(outer.program(), region, map);
    mark_varied(outer.program(), again_, outer.varied());
    own_ = defined_in(again_);
    for (size_t i = 0; i < results.size(); ++i) inner_.accumulate(again_.results[i], outer.cotangent(results[i]));
    inner_.differentiate(again_.ops);
  }

  /// The values from outside that get a cotangent.
  std::vector<ValueId> captured() const {
    std::vector<ValueId> found;
    for (ValueId v : inner_.reached())
      if (!own_.contains(v)) found.push_back(v);
    return found;
  }

  /// The region that yields the cotangents of these values.
  Block build(const std::vector<ValueId>& values) && {
    Block region;
    for (ValueId v : values) region.results.push_back(inner_.cotangent_or_zero(v));
    region.ops = std::move(again_.ops);
    std::ranges::move(adjoint_.ops, std::back_inserter(region.ops));
    return region;
  }

 private:
  ValueSet own_;
  Block again_, adjoint_;
  Adjoints inner_;
};

}  // namespace

/// The derivative of a cond is a cond on the same predicate. Each of its regions recomputes its branch from the values
/// that the branch captures, and yields the cotangents of the values that either branch captures. Nothing is kept from
/// the forward: which values exist there depends on the branch.
void cond(Adjoints& adjoints, Op& op) {
  Program& program = adjoints.program();
  std::array<Branch, 2> branches{Branch(adjoints, op.regions[0], op.results),
                                 Branch(adjoints, op.regions[1], op.results)};
  std::vector<ValueId> captured = branches[0].captured();
  ValueSet of_first;
  for (ValueId v : captured) of_first.insert(v);
  for (ValueId v : branches[1].captured())
    if (!of_first.contains(v)) captured.push_back(v);
  Op backward{ir::OpCode::kCond, {op.operands[0]}, {}, {}, {}};
  for (Branch& branch : branches) backward.regions.push_back(std::move(branch).build(captured));
  for (ValueId v : captured) backward.results.push_back(program.new_value(ir::Type(program.type(v))));
  std::vector<ValueId> results = backward.results;
  adjoints.builder().block().ops.push_back(std::move(backward));
  for (size_t i = 0; i < captured.size(); ++i) adjoints.accumulate(captured[i], results[i]);
}

void while_loop(Adjoints&, Op&) {
  user_error(
      "while: a loop of unknown length has no gradients in reverse mode; give it the most steps that it can take "
      "(max_steps), or detach what it begins with and what it reads");
}

namespace {

/// The derivative that an op brings along, a program (inputs..., results..., cotangents of the floating results...) ->
/// cotangents of the floating inputs. `what` names the op in errors.
void apply_derivative(Adjoints& adjoints, const Op& op, std::vector<ValueId> inputs, std::string_view what) {
  Program& program = adjoints.program();
  auto is_real = [&](ValueId v) { return is_floating(program.type(v).dtype); };
  std::vector<ValueId> floating;
  std::ranges::copy_if(inputs, std::back_inserter(floating), is_real);
  for (ValueId result : op.results) inputs.push_back(adjoints.shown(result));
  for (ValueId result : op.results)
    if (is_real(result)) inputs.push_back(adjoints.cotangent_or_zero(result));
  const Program derivative = ir::parse(op.attr<std::string>("vjp"));
  std::vector<ValueId> gradients = ir::inline_program(adjoints.builder(), derivative, inputs);
  check(gradients.size() == floating.size(), "{}: the derivative of {} gives {} cotangents for {} operands",
        info(op.code).name, what, gradients.size(), floating.size());
  for (size_t i = 0; i < floating.size(); ++i) {
    const ir::Type& type = program.type(floating[i]);
    check(program.type(gradients[i]) == type, "{}: the derivative of {} gives {} for an operand of {}",
          info(op.code).name, what, to_string(program.type(gradients[i])), to_string(type));
    adjoints.accumulate(floating[i], gradients[i]);
  }
}

}  // namespace

void external(Adjoints& adjoints, Op& op) {
  std::string_view name = extern_name(op.attr<std::string>("call"));
  check(op.has("vjp"), "extern: the derivative of {} is not known", name);
  apply_derivative(adjoints, op, op.operands, name);
}

void custom_vjp(Adjoints& adjoints, Op& op) {
  if (op.has("refuses")) user_error("{}", op.attr<std::string>("refuses"));
  const int64_t inputs = op.attr<int64_t>("inputs");
  if (op.attr_or<bool>("hook", false)) adjoints.show(op.operands[0], adjoints.shown(op.results[0]));
  apply_derivative(adjoints, op, {op.operands.begin(), op.operands.begin() + inputs}, "its values");
}

}  // namespace weft::passes::vjp_rules

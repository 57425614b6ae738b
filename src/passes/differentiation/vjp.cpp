#include "passes/differentiation/vjp.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "passes/differentiation/adjoints.h"
#include "passes/pass_runner.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::kNoValue;
using ir::Op;
using ir::Program;
using ir::Type;
using ir::ValueId;

// Passes run by name: the runner times them and leaves out those that WEFT_DISABLE names.
constexpr std::string_view kTidy[] = {"canonicalise", "cse", "dce"};
constexpr std::string_view kBefore[] = {"canonicalise", "cse",          "dce", "reassociate", "hoist",
                                        "push_slices",  "canonicalise", "cse", "dce"};

void tidy(Program& program) { run_passes(program, kTidy); }

/// Forward and backward in one program: (inputs..., cotangents of outputs...) -> (outputs..., cotangents of wanted
/// inputs...).
Program joint(const Program& original, const std::vector<bool>& wanted, Keep keep) {
  Program program = original;
  program.donations.clear();  // the derivative reads inputs that the program may have overwritten
  size_t inputs = program.body.args.size();
  check(wanted.size() == inputs, "vjp: the program has {} inputs, but wanted has {}", inputs, wanted.size());
  run_passes(program, kBefore);

  ValueSet varied;
  for (size_t i = 0; i < inputs; ++i) {
    if (!wanted[i]) continue;
    const Type& type = program.type(program.body.args[i]);
    check(is_floating(type.dtype), "vjp: input {} is {}, and only floating inputs have gradients", i, to_string(type));
    varied.insert(program.body.args[i]);
  }
  mark_varied(program, program.body, varied);

  ir::Block adjoint;
  Adjoints adjoints(program, adjoint, varied, keep);
  std::vector<ValueId> cotangents;
  for (ValueId output : program.body.results) {
    Type type = program.type(output);
    std::string name = program.values[output].name.empty() ? "" : "d_" + program.values[output].name;
    cotangents.push_back(program.new_value(std::move(type), std::move(name)));
    adjoints.accumulate(output, cotangents.back());
  }
  adjoints.differentiate(program.body.ops);
  std::vector<ValueId> gradients;
  for (size_t i = 0; i < inputs; ++i)
    if (wanted[i]) gradients.push_back(adjoints.cotangent_or_zero(program.body.args[i]));

  auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(program.body.args, cotangents);
  append(program.body.ops, adjoint.ops);
  append(program.body.results, gradients);
  tidy(program);
  return program;
}

void add_symbols(const Program& program, const ir::Block& block, std::set<std::string>& symbols) {
  auto add = [&](ValueId v) {
    for (const ir::Dim& dim : program.type(v).shape) dim.add_symbols(symbols);
  };
  for (ValueId arg : block.args) add(arg);
  for (const Op& op : block.ops) {
    for (ValueId result : op.results) add(result);
    for (const auto& [name, attr] : op.attrs)
      if (const auto* dim = std::get_if<ir::Dim>(&attr)) dim->add_symbols(symbols);
    for (const ir::Block& region : op.regions) add_symbols(program, region, symbols);
  }
}

/// For the second derivative of a program that contains a first one. A derivative that the user wrote may not be
/// linear, as when a hook clips a gradient. It would then need the sum of the gradients that both programs give its
/// value, but sees each alone. Such an op refuses instead.
void refuse_another(ir::Block& block) {
  for (Op& op : block.ops) {
    for (ir::Block& region : op.regions) refuse_another(region);
    if (is_repeatable(op)) continue;
    op.attrs = {{"inputs", op.attr<int64_t>("inputs")},
                {"refuses",
                 "weft: the second derivative through a hook on a gradient, or a torch.autograd.Function, whose result "
                 "isn't linear in the gradient is not known; a plain loop in the place of weft.scan has it"}};
  }
}

bool is_hook(const Op& op) {
  return ir::traits_of(op.code).marks == ir::Marks::kOwn && op.attr_or<bool>("hook", false);
}

/// All symbols in the sizes of the program's values.
std::set<std::string> symbols_of(const Program& program) {
  std::set<std::string> symbols;
  add_symbols(program, program.body, symbols);
  return symbols;
}

/// Splits the joint program in two. The backward gets all ops that depend on cotangents; of the other values that it
/// reads, some are kept by the forward and the rest recomputed.
class Split {
 public:
  Split(Program joint, size_t inputs, size_t outputs, Keep keep) : joint_(std::move(joint)) {
    const auto& args = joint_.body.args;
    const auto& results = joint_.body.results;
    inputs_.assign(args.begin(), args.begin() + static_cast<int64_t>(inputs));
    cotangents_.assign(args.begin() + static_cast<int64_t>(inputs), args.end());
    outputs_.assign(results.begin(), results.begin() + static_cast<int64_t>(outputs));
    gradients_.assign(results.begin() + static_cast<int64_t>(outputs), results.end());
    find_tainted();
    find_demanded();
    choose(keep);
  }

  Vjp run() {
    Vjp result;
    result.backward = backward();
    result.residuals = static_cast<int64_t>(residuals_.size());
    const auto inputs = positions(inputs_), outputs = positions(outputs_);
    for (ValueId v : saved_inputs_) result.saved_inputs.push_back(inputs.at(v));
    for (ValueId v : saved_outputs_) result.saved_outputs.push_back(outputs.at(v));
    result.forward = forward();
    return result;
  }

 private:
  /// The first place of each value in a list.
  static std::unordered_map<ValueId, int64_t> positions(const std::vector<ValueId>& list) {
    std::unordered_map<ValueId, int64_t> found;
    for (size_t i = 0; i < list.size(); ++i) found.try_emplace(list[i], static_cast<int64_t>(i));
    return found;
  }

  bool is_tainted(const Op& op) const { return !op.results.empty() && tainted_.contains(op.results[0]); }

  void find_tainted() {
    for (ValueId v : cotangents_) tainted_.insert(v);
    for (const Op& op : joint_.body.ops) {
      bool tainted = false;
      for_each_use(op, [&](ValueId v) { tainted = tainted || tainted_.contains(v); });
      if (!tainted) continue;
      for (ValueId result : op.results) tainted_.insert(result);
    }
  }

  void find_demanded() {
    for (const Op& op : joint_.body.ops)
      if (is_tainted(op)) for_each_use(op, [&](ValueId v) { demand(v); });
    for (ValueId v : gradients_) demand(v);
  }

  void demand(ValueId v) {
    if (!tainted_.contains(v)) demanded_.insert(v);
  }

  void choose(Keep keep) {
    ir::Block primal;
    primal.args = inputs_;
    for (const Op& op : joint_.body.ops)
      if (!is_tainted(op)) primal.ops.push_back(op);
    ValueSet available;
    for (ValueId v : outputs_) available.insert(v);
    const auto inputs = positions(inputs_), outputs = positions(outputs_);
    for (ValueId v : choose_kept(joint_, primal, demanded_, available, {}, only_for_derivative(primal), keep)) {
      kept_.insert(v);
      if (inputs.contains(v))
        saved_inputs_.push_back(v);
      else if (outputs.contains(v))
        saved_outputs_.push_back(v);
      else
        residuals_.push_back(v);
    }
  }

  /// Values that only the derivative reads, such as cos(x) for sin(x). The backward computes them again from x, which
  /// it has anyway, so no stack of them is stored.
  ValueSet only_for_derivative(const ir::Block& primal) const {
    ValueSet read, others;
    for (ValueId v : outputs_) read.insert(v);
    for (size_t i = primal.ops.size(); i-- > 0;) {
      const Op& op = primal.ops[i];
      bool is_read = false;
      for (ValueId result : op.results) is_read = is_read || read.contains(result);
      if (is_read) for_each_use(op, [&](ValueId v) { read.insert(v); });
      for (ValueId result : op.results)
        if (!is_read) others.insert(result);
    }
    return others;
  }

  Program backward() {
    Program program;
    program.name = joint_.name + "_backward";
    program.values = joint_.values;
    ValueSet needed = demanded_;
    std::vector<Op> ops;
    for (size_t i = joint_.body.ops.size(); i-- > 0;) {
      const Op& op = joint_.body.ops[i];
      bool wanted = is_tainted(op);
      for (ValueId result : op.results) wanted = wanted || (needed.contains(result) && !kept_.contains(result));
      if (!wanted) continue;
      for_each_use(op, [&](ValueId v) { needed.insert(v); });
      ops.push_back(op);
      for (ValueId& result : ops.back().results)  // a recomputed op may have results that are kept: these are renamed
        if (kept_.contains(result)) result = program.new_value(Type(joint_.type(result)));
    }
    program.body.ops.assign(std::make_move_iterator(ops.rbegin()), std::make_move_iterator(ops.rend()));
    program.body.results = gradients_;
    bind_symbols(program);
    for (const auto* list : {&saved_inputs_, &saved_outputs_, &residuals_, &cotangents_})
      program.body.args.insert(program.body.args.end(), list->begin(), list->end());
    return program;
  }

  /// Saves one more input for each symbol that no argument of the backward binds.
  void bind_symbols(const Program& backward) {
    std::set<std::string> bound;
    auto bind = [&](ValueId v) {
      for (const ir::Dim& dim : joint_.type(v).shape)
        if (dim.is_symbol()) bound.insert(dim.name());
    };
    for (const auto* list : {&saved_inputs_, &saved_outputs_, &residuals_, &cotangents_})
      for (ValueId v : *list) bind(v);
    std::map<std::string, ValueId> first_input;  // by symbol: the first input with a dim of that size
    for (ValueId input : inputs_)
      for (const ir::Dim& dim : joint_.type(input).shape)
        if (dim.is_symbol()) first_input.try_emplace(dim.name(), input);
    for (const std::string& symbol : symbols_of(backward)) {
      auto input = first_input.find(symbol);
      if (bound.contains(symbol) || input == first_input.end()) continue;
      saved_inputs_.push_back(input->second);
      bind(input->second);
    }
  }

  Program forward() {
    Program program = std::move(joint_);
    program.body.args = inputs_;
    program.body.results = outputs_;
    program.body.results.insert(program.body.results.end(), residuals_.begin(), residuals_.end());
    std::erase_if(program.body.ops, [&](const Op& op) { return is_tainted(op); });
    return program;
  }

  Program joint_;
  std::vector<ValueId> inputs_, cotangents_, outputs_, gradients_;
  ValueSet tainted_, demanded_, kept_;
  std::vector<ValueId> saved_inputs_, saved_outputs_, residuals_;
};

}  // namespace

Vjp vjp(const Program& program, const std::vector<bool>& wanted, Keep keep) {
  Program both = joint(program, wanted, keep);
  Vjp result = Split(std::move(both), program.body.args.size(), program.body.results.size(), keep).run();
  tidy(result.forward);
  tidy(result.backward);
  return result;
}

Program vjp_of_primals(const Program& program, const std::vector<bool>& wanted) {
  Program result = joint(program, wanted, Keep::kBalanced);
  auto& results = result.body.results;
  results.erase(results.begin(), results.begin() + static_cast<int64_t>(program.body.results.size()));
  result.name = program.name + "_vjp";
  refuse_another(result.body);
  tidy(result);
  return result;
}

Program value_and_vjp(const Program& program, const std::vector<bool>& wanted) {
  Program result = joint(program, wanted, Keep::kBalanced);
  result.name = program.name + "_and_vjp";
  tidy(result);
  return result;
}

Program jvp_of_primals(const Program& original, const std::vector<bool>& varied) {
  Program program = original;
  replace_by_values(program, is_hook);  // hooks do nothing in forward mode
  const size_t inputs = program.body.args.size(), outputs = program.body.results.size();
  std::vector<bool> cotangents(inputs + outputs, false);
  for (size_t i = 0; i < outputs; ++i)
    cotangents[inputs + i] = is_floating(program.type(program.body.results[i]).dtype);
  Program result = vjp_of_primals(vjp_of_primals(program, varied), cotangents);
  result.name = program.name + "_jvp";
  // The function is linear in the cotangents, so its derivative doesn't depend on them: zeros are passed.
  std::vector<ValueId>& args = result.body.args;
  const auto first = args.begin() + static_cast<int64_t>(inputs);
  const auto last = first + static_cast<int64_t>(outputs);
  std::vector<Op> zeros;
  for (auto arg = first; arg != last; ++arg)
    zeros.push_back(Op{ir::OpCode::kConstant, {}, {*arg}, {{"value", 0.0}}, {}});
  args.erase(first, last);
  result.body.ops.insert(result.body.ops.begin(), zeros.begin(), zeros.end());
  tidy(result);
  return result;
}

}  // namespace weft::passes

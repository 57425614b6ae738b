#include "passes/simplification/constant_calls.h"

#include <algorithm>
#include <vector>

#include "ir/traits.h"
#include "ir/verifier.h"
#include "passes/rewrite.h"
#include "passes/simplification/dce.h"

namespace weft::passes {

using ir::Op;
using ir::Program;
using ir::ValueId;

namespace {

/// The calls, by their places in the program.
std::vector<bool> find(const Program& program, size_t first) {
  ValueSet constant;
  for (size_t i = first; i < program.body.args.size(); ++i) constant.insert(program.body.args[i]);
  std::vector<bool> found;
  for (const Op& op : program.body.ops) {
    const bool follows = op.regions.empty() &&
                         std::ranges::all_of(op.operands, [&](ValueId operand) { return constant.contains(operand); });
    if (follows)
      for (ValueId result : op.results) constant.insert(result);
    found.push_back(follows && ir::traits_of(op.code).calls_out);
  }
  return found;
}

}  // namespace

std::optional<ConstantCalls> constant_calls(const Program& program, size_t first) {
  const std::vector<bool> is_call = find(program, first);
  if (std::ranges::find(is_call, true) == is_call.end()) return std::nullopt;
  ConstantCalls found{program, program};
  std::vector<ValueId> made;
  found.rest.body.ops.clear();
  for (size_t i = 0; i < is_call.size(); ++i) {
    const Op& op = program.body.ops[i];
    if (is_call[i])
      made.insert(made.end(), op.results.begin(), op.results.end());
    else
      found.rest.body.ops.push_back(op);
  }
  std::vector<ValueId>& args = found.rest.body.args;
  args.insert(args.end(), made.begin(), made.end());
  dce(found.rest);
  ValueSet used;
  for_each_use(found.rest.body, [&](ValueId value) { used.insert(value); });
  const auto is_unused = [&](ValueId value) { return !used.contains(value); };
  args.erase(
      std::remove_if(args.begin() + static_cast<std::ptrdiff_t>(program.body.args.size()), args.end(), is_unused),
      args.end());
  std::erase_if(made, is_unused);
  found.calls.body.results = std::move(made);
  dce(found.calls);
  found.calls.body.args.erase(found.calls.body.args.begin(),
                              found.calls.body.args.begin() + static_cast<std::ptrdiff_t>(first));
  ir::verify(found.calls);
  ir::verify(found.rest);
  return found;
}

}  // namespace weft::passes

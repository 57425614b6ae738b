#include "capture/compose.h"

#include <algorithm>

#include "capture/region.h"
#include "ir/builder.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace weft::capture {

using ir::ValueId;

namespace {

/// A symbol that the program doesn't use.
ir::Dim fresh_symbol(const ir::Program& program, std::string name) {
  auto taken = [&](const std::string& symbol) {
    return std::ranges::any_of(program.values, [&](const ir::Value& value) {
      return std::ranges::any_of(value.type.shape,
                                 [&](const ir::Dim& dim) { return std::ranges::count(dim.symbols, symbol) != 0; });
    });
  };
  while (taken(name)) name += "_";
  return ir::Dim::symbol(name);
}

}  // namespace

std::string scan_program(std::string_view text, int64_t carries, int64_t xs, bool reverse) {
  const ir::Program step = ir::parse(text);
  const std::vector<ValueId>& args = step.body.args;
  check(carries + xs <= static_cast<int64_t>(args.size()),
        "scan_program: the step takes {} inputs, not {} carries and {} xs", args.size(), carries, xs);
  check(carries <= static_cast<int64_t>(step.body.results.size()),
        "scan_program: the step gives {} results, not {} carries", step.body.results.size(), carries);
  const ir::Dim length = fresh_symbol(step, "T");
  ir::Program program;
  program.name = "scan";
  ir::Builder builder(program, program.body);
  std::vector<ValueId> inits, stacks, captured;
  for (size_t i = 0; i < args.size(); ++i) {
    ir::Type type = step.type(args[i]);
    auto position = static_cast<int64_t>(i);
    if (position == carries + xs && xs == 0) stacks.push_back(builder.input({DType::kF32, {length, ir::Dim(0)}}));
    if (position < carries) {
      inits.push_back(builder.input(type));
    } else if (position < carries + xs) {
      stacks.push_back(builder.input(ir::stacked(type, length, std::nullopt)));
    } else {
      captured.push_back(builder.input(type));
    }
  }
  if (stacks.empty()) stacks.push_back(builder.input({DType::kF32, {length, ir::Dim(0)}}));
  auto body = [&](ir::Builder& inner, std::span<const ValueId> now, std::span<const ValueId> slices) {
    std::vector<ValueId> inputs(now.begin(), now.end());
    if (xs > 0) inputs.insert(inputs.end(), slices.begin(), slices.end());
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    std::vector<ValueId> results = inline_program(inner, step, inputs);
    ir::Builder::StepResults next;
    next.carries.assign(results.begin(), results.begin() + carries);
    next.ys.assign(results.begin() + carries, results.end());
    return next;
  };
  builder.ret(builder.scan(inits, stacks, length, reverse, body));
  ir::verify(program);
  return ir::print(program, /*canonical=*/true);
}

}  // namespace weft::capture

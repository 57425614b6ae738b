#include "passes/loops/write_out.h"

#include "ir/builder.h"

namespace weft::passes {

using ir::ValueId;

namespace {

ValueId stack(ir::Builder& builder, const std::vector<ValueId>& steps, const ir::Type& type) {
  if (steps.empty()) return builder.constant(0, type);
  ir::Shape one = type.shape;
  one[0] = ir::Dim(1);
  std::vector<ValueId> parts;
  for (ValueId step : steps) parts.push_back(builder.reshape(step, one));
  return parts.size() == 1 ? parts[0] : builder.concat(std::move(parts), 0);
}

}  // namespace

void write_out(ir::Builder& builder, const ir::Op& op, Substitution& map, const WriteStep& write) {
  const ir::Program& program = builder.program();
  const ir::ScanView scan(op);
  const int64_t length = scan.length.constant();
  std::vector<ValueId> carries;
  for (ValueId init : scan.inits) carries.push_back(map(init));
  std::vector<std::vector<ValueId>> ys(scan.y_outs.size(), std::vector<ValueId>(static_cast<size_t>(length)));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t t = scan.reverse ? length - 1 - i : i;
    Substitution step = map;
    for (size_t c = 0; c < carries.size(); ++c) step.set(scan.carry_args[c], carries[c]);
    for (size_t x = 0; x < scan.xs.size(); ++x) {
      const ValueId slice = builder.slice(map(scan.xs[x]), 0, t, t + 1);
      step.set(scan.x_args[x], builder.reshape(slice, ir::Shape(program.type(scan.x_args[x]).shape)));
    }
    write(scan.region, step);
    for (size_t c = 0; c < carries.size(); ++c) carries[c] = step(scan.carry_outs[c]);
    for (size_t y = 0; y < ys.size(); ++y) ys[y][static_cast<size_t>(t)] = step(scan.y_outs[y]);
  }
  for (size_t c = 0; c < carries.size(); ++c) map.set(scan.carry_results[c], carries[c]);
  for (size_t y = 0; y < ys.size(); ++y) map.set(scan.stacks[y], stack(builder, ys[y], program.type(scan.stacks[y])));
}

}  // namespace weft::passes

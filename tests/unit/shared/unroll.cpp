#include "unroll.h"

#include "ir/builder.h"
#include "passes/rewrite.h"

namespace weft::testing {

using ir::Block;
using ir::Builder;
using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ScanView;
using ir::ValueId;
using passes::Substitution;

namespace {

void set_sizes(Block& block, const ir::Bindings& bindings) {
  for (Op& op : block.ops) {
    for (auto& [name, attr] : op.attrs)
      if (const auto* dim = std::get_if<Dim>(&attr)) {
        const Dim size(ir::evaluate(*dim, bindings));
        attr = ir::is_bound(name) ? ir::as_attr(size) : ir::Attr(size);
      }
    for (Block& region : op.regions) set_sizes(region, bindings);
  }
}

class Unroller {
 public:
  Unroller(Program& program, Block& out) : program_(program), builder_(program, out) {}

  /// Appends the block's ops; `map` has their values in the new program.
  void run(const Block& block, Substitution& map) {
    for (const Op& op : block.ops) {
      if (op.code == OpCode::kScan)
        unroll(op, map);
      else
        builder_.block().ops.push_back(passes::clone(program_, op, map));
    }
  }

 private:
  void unroll(const Op& op, Substitution& map) {
    ScanView scan(op);
    std::vector<ValueId> carries;
    for (ValueId init : scan.inits) carries.push_back(map(init));
    int64_t length = scan.length.constant();
    std::vector<std::vector<ValueId>> ys(scan.y_outs.size(), std::vector<ValueId>(static_cast<size_t>(length)));
    for (int64_t i = 0; i < length; ++i) {
      int64_t t = scan.reverse ? length - 1 - i : i;
      Substitution step = map;
      for (size_t c = 0; c < carries.size(); ++c) step.set(scan.carry_args[c], carries[c]);
      for (size_t x = 0; x < scan.xs.size(); ++x) {
        ValueId slice = builder_.slice(map(scan.xs[x]), 0, t, t + 1);
        step.set(scan.x_args[x], builder_.reshape(slice, ir::Shape(program_.type(scan.x_args[x]).shape)));
      }
      run(scan.region, step);
      for (size_t c = 0; c < carries.size(); ++c) carries[c] = step(scan.carry_outs[c]);
      for (size_t y = 0; y < ys.size(); ++y) ys[y][static_cast<size_t>(t)] = step(scan.y_outs[y]);
    }
    for (size_t c = 0; c < carries.size(); ++c) map.set(scan.carry_results[c], carries[c]);
    for (size_t y = 0; y < ys.size(); ++y) map.set(scan.stacks[y], stack(ys[y]));
  }

  ValueId stack(const std::vector<ValueId>& steps) {
    ir::Shape one = program_.type(steps[0]).shape;
    one.insert(one.begin(), Dim(1));
    std::vector<ValueId> parts;
    for (ValueId v : steps) parts.push_back(builder_.reshape(v, one));
    return builder_.concat(std::move(parts), 0);
  }

  Program& program_;
  Builder builder_;
};

}  // namespace

Program with_sizes(const Program& program, const ir::Bindings& bindings) {
  Program result = program;
  for (ir::Value& value : result.values)
    for (Dim& dim : value.type.shape) dim = Dim(ir::evaluate(dim, bindings));
  set_sizes(result.body, bindings);
  return result;
}

Program unrolled(const Program& program) {
  Program result = program;
  Block body = std::move(result.body);
  result.body = {};
  result.body.args = body.args;
  Substitution map;
  Unroller(result, result.body).run(body, map);
  for (ValueId v : body.results) result.body.results.push_back(map(v));
  return result;
}

int count_scans(const Block& block) {
  int count = 0;
  for (const Op& op : block.ops) {
    count += op.code == OpCode::kScan;
    for (const Block& region : op.regions) count += count_scans(region);
  }
  return count;
}

}  // namespace weft::testing

#include "passes/rewrite.h"

namespace weft::passes {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::Program;
using ir::Type;
using ir::ValueId;

ValueId Substitution::operator()(ValueId value) const {
  while (contains(value)) value = to_[value];
  return value;
}

void Substitution::set(ValueId from, ValueId to) {
  if (from == to) return;
  if (from >= to_.size()) to_.resize(from + from / 2 + 16, kNoValue);
  to_[from] = to;
}

bool ValueSet::insert(ValueId value) {
  if (value >= bits_.size()) bits_.resize(value + value / 2 + 64);
  if (bits_[value]) return false;
  bits_[value] = true;
  return true;
}

void ValueSet::erase(ValueId value) {
  if (value < bits_.size()) bits_[value] = false;
}

ValueSet defined_in(const Block& block) {
  ValueSet set;
  for (ValueId arg : block.args) set.insert(arg);
  for (const Op& op : block.ops)
    for (ValueId result : op.results) set.insert(result);
  return set;
}

void substitute(Op& op, const Substitution& with) {
  for (ValueId& v : op.operands) v = with(v);
  for (Block& region : op.regions) substitute(region, with);
}

void substitute(Block& block, const Substitution& with) {
  for (Op& op : block.ops) substitute(op, with);
  for (ValueId& v : block.results) v = with(v);
}

namespace {

ValueId clone_value(Program& program, ValueId value, Substitution& map) {
  Type type = program.type(value);
  ValueId copy = program.new_value(std::move(type), program.values[value].name);
  map.set(value, copy);
  return copy;
}

}  // namespace

Op clone(Program& program, const Op& op, Substitution& map) {
  Op copy{op.code, {}, {}, op.attrs, {}};
  for (ValueId v : op.operands) copy.operands.push_back(map(v));
  for (const Block& region : op.regions) copy.regions.push_back(clone(program, region, map));
  for (ValueId v : op.results) copy.results.push_back(clone_value(program, v, map));
  return copy;
}

Block clone(Program& program, const Block& block, Substitution& map) {
  Block copy;
  for (ValueId v : block.args) copy.args.push_back(clone_value(program, v, map));
  for (const Op& op : block.ops) copy.ops.push_back(clone(program, op, map));
  for (ValueId v : block.results) copy.results.push_back(map(v));
  return copy;
}

std::vector<uint32_t> count_uses(const Program& program, const Block& block) {
  std::vector<uint32_t> counts(program.values.size());
  for_each_use(block, [&](ValueId v) { ++counts[v]; });
  return counts;
}

int64_t estimated_bytes(const Type& type) {
  constexpr int64_t kSymbol = 32;
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t bytes = size_of(type.dtype);
  for (const ir::Dim& dim : type.shape) {
    int64_t size = dim.factor;
    for (size_t i = 0; i < dim.symbols.size() && size < kMost; ++i) size *= kSymbol;
    bytes = size > kMost / std::max<int64_t>(bytes, 1) ? kMost : bytes * size;
  }
  return std::max<int64_t>(bytes, 1);
}

Type stacked(const Type& type, const ir::Dim& length) {
  Type result = type;
  result.shape.insert(result.shape.begin(), length);
  return result;
}

std::vector<int32_t> definitions(const Program& program, const Block& block) {
  std::vector<int32_t> index(program.values.size(), -1);
  for (size_t i = 0; i < block.ops.size(); ++i)
    for (ValueId result : block.ops[i].results) index[result] = static_cast<int32_t>(i);
  return index;
}

ScanParts::ScanParts(Op&& scan) {
  ir::ScanView view(scan);
  length = view.length;
  reverse = view.reverse;
  ragged = view.ragged;
  checkpointed = scan.attr_or(ir::kCheckpoint, false);
  for (size_t i = 0; i < view.inits.size(); ++i)
    carries.push_back({view.inits[i], view.carry_args[i], view.carry_outs[i], view.carry_results[i]});
  for (size_t i = 0; i < view.xs.size(); ++i) xs.push_back({view.xs[i], view.x_args[i]});
  for (size_t i = 0; i < view.y_outs.size(); ++i) ys.push_back({view.y_outs[i], view.stacks[i]});
  ops = std::move(scan.regions[0].ops);
}

Op ScanParts::build() && {
  Op scan{ir::OpCode::kScan, {}, {}, {{"carries", static_cast<int64_t>(carries.size())}, {"length", length}}, {}};
  if (reverse) scan.attrs.emplace("reverse", true);
  if (checkpointed) scan.attrs.emplace(ir::kCheckpoint, true);
  Block region;
  for (const Carry& carry : carries) {
    scan.operands.push_back(carry.init);
    region.args.push_back(carry.arg);
    region.results.push_back(carry.out);
    scan.results.push_back(carry.result);
  }
  for (const X& x : xs) {
    scan.operands.push_back(x.stack);
    region.args.push_back(x.arg);
  }
  for (const Y& y : ys) {
    region.results.push_back(y.out);
    scan.results.push_back(y.stack);
  }
  if (ragged) {
    scan.operands.push_back(ragged->batch_sizes);
    scan.attrs.emplace("rows", ragged->rows);
    scan.attrs.emplace("packed", ragged->packed);
  }
  region.ops = std::move(ops);
  scan.regions.push_back(std::move(region));
  return scan;
}

ValueId ScanParts::stack_of(Program& program, ValueId out) {
  for (const Y& y : ys)
    if (y.out == out) return y.stack;
  ValueId stack = program.new_value(ir::stacked(program.type(out), length, ragged));
  ys.push_back({out, stack});
  return stack;
}

ValueId ScanParts::step_of(Program& program, ValueId stack) {
  for (const X& x : xs)
    if (x.stack == stack) return x.arg;
  ValueId arg = program.new_value(ir::step_of(program.type(stack), ragged));
  xs.push_back({stack, arg});
  return arg;
}

}  // namespace weft::passes

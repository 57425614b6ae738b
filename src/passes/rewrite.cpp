#include "passes/rewrite.h"

#include <algorithm>

#include "base/target.h"

namespace weft::passes {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::Program;
using ir::Type;
using ir::ValueId;

ValueId Substitution::operator()(ValueId value) const {
  ValueId end = value;
  while (const ValueId next = to_.get(end)) end = next - 1;
  while (const ValueId next = to_.get(value)) {
    if (next - 1 != end) to_[value] = end + 1;
    value = next - 1;
  }
  return end;
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

void copy_note(const Op& from, std::span<Op> to) {
  const auto note = from.attrs.find(kSourceOperation);
  if (note == from.attrs.end()) return;
  for (Op& op : to) op.attrs.insert(*note);
}

int64_t estimated_bytes(const Type& type) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t bytes = size_of(type.dtype);
  for (const ir::Dim& dim : type.shape) {
    const int64_t size = ir::estimate(dim, target::kTypicalSize, kMost);
    bytes = size > kMost / std::max<int64_t>(bytes, 1) ? kMost : bytes * size;
  }
  return std::max<int64_t>(bytes, 1);
}

Type stacked(const Type& type, const ir::Dim& length) {
  Type result = type;
  result.shape.insert(result.shape.begin(), length);
  return result;
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

namespace {

void replace_by_values(Block& block, bool (*which)(const Op&), Substitution& replaced) {
  for (Op& op : block.ops) {
    for (Block& region : op.regions) replace_by_values(region, which, replaced);
    if (!which(op)) continue;
    for (size_t i = 0; i < op.results.size(); ++i) replaced.set(op.results[i], value_of(op, i));
  }
  std::erase_if(block.ops, which);
}

}  // namespace

void replace_by_values(Program& program, bool (*which)(const Op&)) {
  Substitution replaced;
  replace_by_values(program.body, which, replaced);
  substitute(program.body, replaced);
}

void substitute(ScanParts& scan, const Substitution& with) {
  for (Op& op : scan.ops) substitute(op, with);
  for (ScanParts::Carry& carry : scan.carries) carry.out = with(carry.out);
  for (ScanParts::Y& y : scan.ys) y.out = with(y.out);
}

void drop_dead_ops(ScanParts& scan) {
  ValueSet live;
  for (const ScanParts::Carry& carry : scan.carries) live.insert(carry.out);
  for (const ScanParts::Y& y : scan.ys) live.insert(y.out);
  std::vector<Op> ops;
  for (size_t i = scan.ops.size(); i-- > 0;) {
    Op& op = scan.ops[i];
    if (std::ranges::none_of(op.results, [&](ValueId v) { return live.contains(v); })) continue;
    for_each_use(op, [&](ValueId v) { live.insert(v); });
    ops.push_back(std::move(op));
  }
  scan.ops.assign(std::make_move_iterator(ops.rbegin()), std::make_move_iterator(ops.rend()));
  std::erase_if(scan.xs, [&](const ScanParts::X& x) { return !live.contains(x.arg); });
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

namespace {

/// The index in `list` of the entry whose `member` is the value, or none. `places` caches, by value, the index plus one
/// of the first `known` entries. Users of the list append to it or take entries out, so the cache is brought up to date
/// here.
template <typename Entry>
std::optional<size_t> find_in(const std::vector<Entry>& list, ValueId Entry::* member, ValueId value,
                              ValueMap<uint32_t>& places, size_t& known) {
  if (list.size() < known) {
    places = {};
    known = 0;
  }
  for (; known < list.size(); ++known)
    if (uint32_t& place = places[list[known].*member]; place == 0) place = static_cast<uint32_t>(known) + 1;
  const uint32_t place = places.get(value);
  return place == 0 ? std::nullopt : std::optional<size_t>(place - 1);
}

}  // namespace

ValueId ScanParts::stack_of(Program& program, ValueId out) {
  if (const auto found = find_in(ys, &Y::out, out, y_of_, known_ys_)) return ys[*found].stack;
  ValueId stack = program.new_value(ir::stacked(program.type(out), length, ragged));
  ys.push_back({out, stack});
  return stack;
}

ValueId ScanParts::step_of(Program& program, ValueId stack) {
  if (const auto found = find_in(xs, &X::stack, stack, x_of_, known_xs_)) return xs[*found].arg;
  ValueId arg = program.new_value(ir::step_of(program.type(stack), ragged));
  xs.push_back({stack, arg});
  return arg;
}

}  // namespace weft::passes

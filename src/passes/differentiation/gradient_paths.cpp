#include "passes/differentiation/gradient_paths.h"

#include <algorithm>

namespace weft::passes {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

constexpr size_t kBits = 64;

}  // namespace

GradientPaths::GradientPaths(const ir::Program& program)
    : program_(&program),
      by_value_(program.values.size()),
      is_read_(program.values.size()),
      inputs_(program.body.args.size()) {
  mark_read(program.body);
  for (size_t i = 0; i < inputs_; ++i) {
    if (!carries_gradient(program.body.args[i])) continue;
    Inputs& own = by_value_[program.body.args[i]];
    own.resize(inputs_ / kBits + 1);
    own[i / kBits] |= uint64_t{1} << i % kBits;
  }
  follow(program.body);
  for (const ValueId result : program.body.results) by_result_.push_back(by_value_[result]);
  by_value_ = {};
  is_read_ = {};
  program_ = nullptr;
}

std::vector<bool> GradientPaths::reached(const std::vector<bool>& results) const {
  Inputs inputs = of_unread_;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]) add(by_result_[i], inputs);
  std::vector<bool> is_reached(inputs_);
  if (inputs.empty()) return is_reached;
  for (size_t i = 0; i < inputs_; ++i) is_reached[i] = (inputs[i / kBits] >> i % kBits & 1) != 0;
  return is_reached;
}

bool GradientPaths::add(const Inputs& more, Inputs& inputs) {
  if (more.empty()) return false;
  bool grew = inputs.empty();
  inputs.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) {
    grew = grew || (more[i] & ~inputs[i]) != 0;
    inputs[i] |= more[i];
  }
  return grew;
}

void GradientPaths::mark_read(const Block& block) {
  for (const Op& op : block.ops) {
    for (const ValueId operand : op.operands) is_read_[operand] = true;
    for (const Block& region : op.regions) mark_read(region);
  }
  for (const ValueId result : block.results) is_read_[result] = true;
}

void GradientPaths::follow(const Block& block) {
  for (const Op& op : block.ops) follow(op);
}

void GradientPaths::follow(const Op& op) {
  if (op.code == OpCode::kStopGradient) return;
  if (op.code == OpCode::kScan) return follow_scan(op);
  Inputs inputs;
  for (const ValueId operand : op.operands) add(by_value_[operand], inputs);
  for (const Block& region : op.regions) {
    follow(region);
    add_read(region, inputs);
  }
  for (const ValueId result : op.results)
    if (carries_gradient(result)) by_value_[result] = inputs;
  if (std::ranges::none_of(op.results, [&](ValueId result) { return is_read_[result]; }))
    for (const ValueId result : op.results) add(by_value_[result], of_unread_);
}

/// A carry has what any step may have given it, so the step is followed until no carry gets more.
void GradientPaths::follow_scan(const Op& scan) {
  const ir::ScanView view(scan);
  for (size_t i = 0; i < view.inits.size(); ++i) by_value_[view.carry_args[i]] = by_value_[view.inits[i]];
  for (size_t i = 0; i < view.xs.size(); ++i) by_value_[view.x_args[i]] = by_value_[view.xs[i]];
  for (bool grew = true; grew;) {
    grew = false;
    follow(view.region);
    for (size_t i = 0; i < view.carry_args.size(); ++i)
      grew = add(by_value_[view.carry_outs[i]], by_value_[view.carry_args[i]]) || grew;
  }
  // Rows that no step computes are the initial carry's.
  const bool has_steps = view.length.is_constant() && view.length.constant() > 0 && !view.ragged;
  for (size_t i = 0; i < view.carry_results.size(); ++i) {
    by_value_[view.carry_results[i]] = by_value_[view.carry_outs[i]];
    if (!has_steps) add(by_value_[view.inits[i]], by_value_[view.carry_results[i]]);
  }
  for (size_t i = 0; i < view.stacks.size(); ++i) by_value_[view.stacks[i]] = by_value_[view.y_outs[i]];
}

void GradientPaths::add_read(const Block& region, Inputs& inputs) const {
  for (const Op& op : region.ops) {
    for (const ValueId operand : op.operands) add(by_value_[operand], inputs);
    for (const Block& inner : op.regions) add_read(inner, inputs);
  }
  for (const ValueId result : region.results) add(by_value_[result], inputs);
}

}  // namespace weft::passes

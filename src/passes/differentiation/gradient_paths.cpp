#include "passes/differentiation/gradient_paths.h"

#include <algorithm>

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::ValueId;
using Inputs = GradientPaths::Inputs;

constexpr size_t kBits = 64;

bool has_input(const Inputs& inputs, size_t i) { return !inputs.empty() && (inputs[i / kBits] >> i % kBits & 1) != 0; }

/// Adds more inputs. Returns whether the set grew.
bool add_inputs(const Inputs& more, Inputs& inputs) {
  if (more.empty()) return false;
  bool grew = inputs.empty();
  inputs.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) {
    grew = grew || (more[i] & ~inputs[i]) != 0;
    inputs[i] |= more[i];
  }
  return grew;
}

/// Follows the values of a program from its inputs on.
class Follower {
 public:
  explicit Follower(const ir::Program& program)
      : program_(program), by_value_(program.values.size()), is_read_(program.values.size()) {
    mark_read(program.body);
    const std::vector<ValueId>& args = program.body.args;
    for (size_t i = 0; i < args.size(); ++i) {
      if (!carries_gradient(args[i])) continue;
      by_value_[args[i]].resize(args.size() / kBits + 1);
      by_value_[args[i]][i / kBits] |= uint64_t{1} << i % kBits;
    }
    follow(program.body);
  }

  const Inputs& of(ValueId value) const { return by_value_[value]; }
  const Inputs& of_unread() const { return of_unread_; }

 private:
  bool carries_gradient(ValueId value) const { return is_floating(program_.type(value).dtype); }

  /// Marks the values of a block that something reads.
  void mark_read(const Block& block) {
    for (const Op& op : block.ops) {
      for (const ValueId operand : op.operands) is_read_[operand] = true;
      for (const Block& region : op.regions) mark_read(region);
    }
    for (const ValueId result : block.results) is_read_[result] = true;
  }

  void follow(const Block& block) {
    for (const Op& op : block.ops) follow(op);
  }

  void follow(const Op& op) {
    if (ir::traits_of(op.code).marks == ir::Marks::kStop) return;
    if (op.code == OpCode::kScan) return follow_scan(op);
    Inputs inputs;
    for (const ValueId operand : op.operands) add_inputs(by_value_[operand], inputs);
    for (const Block& region : op.regions) {
      follow(region);
      add_read(region, inputs);
    }
    for (const ValueId result : op.results)
      if (carries_gradient(result)) by_value_[result] = inputs;
    if (std::ranges::none_of(op.results, [&](ValueId result) { return is_read_[result]; }))
      for (const ValueId result : op.results) add_inputs(by_value_[result], of_unread_);
  }

  /// A carry has the inputs that any step may have given it, so the step is followed until no carry gets more inputs.
  void follow_scan(const Op& scan) {
    const ir::ScanView view(scan);
    for (size_t i = 0; i < view.inits.size(); ++i) by_value_[view.carry_args[i]] = by_value_[view.inits[i]];
    for (size_t i = 0; i < view.xs.size(); ++i) by_value_[view.x_args[i]] = by_value_[view.xs[i]];
    for (bool grew = true; grew;) {
      grew = false;
      follow(view.region);
      for (size_t i = 0; i < view.carry_args.size(); ++i)
        grew = add_inputs(by_value_[view.carry_outs[i]], by_value_[view.carry_args[i]]) || grew;
    }
    // Rows that no step computes are the initial carry's.
    const bool has_steps = view.length.is_constant() && view.length.constant() > 0 && !view.ragged;
    for (size_t i = 0; i < view.carry_results.size(); ++i) {
      by_value_[view.carry_results[i]] = by_value_[view.carry_outs[i]];
      if (!has_steps) add_inputs(by_value_[view.inits[i]], by_value_[view.carry_results[i]]);
    }
    for (size_t i = 0; i < view.stacks.size(); ++i) by_value_[view.stacks[i]] = by_value_[view.y_outs[i]];
  }

  /// Adds all that a region reads, from outside as well.
  void add_read(const Block& region, Inputs& inputs) const {
    for (const Op& op : region.ops) {
      for (const ValueId operand : op.operands) add_inputs(by_value_[operand], inputs);
      for (const Block& inner : op.regions) add_read(inner, inputs);
    }
    for (const ValueId result : region.results) add_inputs(by_value_[result], inputs);
  }

  const ir::Program& program_;
  std::vector<Inputs> by_value_;
  std::vector<bool> is_read_;  ///< by value
  Inputs of_unread_;
};

}  // namespace

GradientPaths::GradientPaths(const ir::Program& program) : inputs_(program.body.args.size()) {
  const Follower followed(program);
  of_unread_ = followed.of_unread();
  for (const ValueId result : program.body.results) by_result_.push_back(followed.of(result));
}

std::vector<bool> GradientPaths::reached(const std::vector<bool>& results) const {
  Inputs inputs = of_unread_;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]) add_inputs(by_result_[i], inputs);
  std::vector<bool> is_reached(inputs_);
  for (size_t i = 0; i < inputs_; ++i) is_reached[i] = has_input(inputs, i);
  return is_reached;
}

std::vector<bool> GradientPaths::reaching(const std::vector<bool>& inputs) const {
  std::vector<bool> reaches;
  for (const Inputs& own : by_result_) {
    bool some = false;
    for (size_t i = 0; i < inputs_ && !some; ++i) some = inputs[i] && (has_input(own, i) || has_input(of_unread_, i));
    reaches.push_back(some);
  }
  return reaches;
}

void add_path(ir::Program& program, ir::ValueId input) {
  program.body.ops.push_back({OpCode::kCopy, {input}, {program.new_value(program.type(input))}, {}, {}});
}

void keep_paths(const GradientPaths& before, ir::Program& program) {
  const std::vector<bool> results(program.body.results.size(), true);
  const std::vector<bool> had = before.reached(results), has = GradientPaths(program).reached(results);
  for (size_t i = 0; i < has.size(); ++i)
    if (had[i] && !has[i]) add_path(program, program.body.args[i]);
}

}  // namespace weft::passes

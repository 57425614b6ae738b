#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/builder.h"
#include "ir/program.h"

namespace weft::passes {

/// Replacements of values by values; a value that was never set stands for itself.
class Substitution {
 public:
  /// The replacement of `value`, through any chain of replacements.
  ir::ValueId operator()(ir::ValueId value) const;
  void set(ir::ValueId from, ir::ValueId to);
  bool contains(ir::ValueId value) const { return value < to_.size() && to_[value] != ir::kNoValue; }

 private:
  std::vector<ir::ValueId> to_;
};

/// A set of values, as a bitmap over ids.
class ValueSet {
 public:
  bool contains(ir::ValueId value) const { return value < bits_.size() && bits_[value]; }
  /// True iff it was not in the set before.
  bool insert(ir::ValueId value);
  void erase(ir::ValueId value);

 private:
  std::vector<bool> bits_;
};

/// Calls f(value) for each operand, and for each value that the op's regions use or yield.
template <typename F>
void for_each_use(const ir::Op& op, F&& f);

/// The same for all ops of a block and its results.
template <typename F>
void for_each_use(const ir::Block& block, F&& f) {
  for (const ir::Op& op : block.ops) for_each_use(op, f);
  for (ir::ValueId v : block.results) f(v);
}

template <typename F>
void for_each_use(const ir::Op& op, F&& f) {
  for (ir::ValueId v : op.operands) f(v);
  for (const ir::Block& region : op.regions) for_each_use(region, f);
}

/// The values that are args of the block or results of its ops (not those of nested regions).
ValueSet defined_in(const ir::Block& block);

/// Rewrites every use in place.
void substitute(ir::Op& op, const Substitution& with);
void substitute(ir::Block& block, const Substitution& with);

/// A copy with new values for all it defines; uses go through `map`, which learns the new values.
ir::Op clone(ir::Program& program, const ir::Op& op, Substitution& map);
ir::Block clone(ir::Program& program, const ir::Block& block, Substitution& map);

/// How often each value is used (index: value), regions included; a block's results count.
std::vector<uint32_t> count_uses(const ir::Program& program, const ir::Block& block);

/// A guess of how many bytes a value takes, to compare alternatives with: a symbol counts as 32.
int64_t estimated_bytes(const ir::Type& type);

/// The type of `length` stacked values of the type.
ir::Type stacked(const ir::Type& type, const ir::Dim& length);

/// Where each value of a block is computed: the index of its op in block.ops, or -1.
std::vector<int32_t> definitions(const ir::Program& program, const ir::Block& block);

/// A scan as parts that can be edited, and put together again. What belongs together has one index: carries, xs, ys.
struct ScanParts {
  struct Carry {
    ir::ValueId init, arg, out, result;
  };
  struct X {
    ir::ValueId stack, arg;
  };
  struct Y {
    ir::ValueId out, stack;
  };
  std::vector<Carry> carries;
  std::vector<X> xs;
  std::vector<Y> ys;
  std::vector<ir::Op> ops;
  ir::Dim length;
  std::optional<ir::Ragged> ragged;
  bool reverse = false;
  bool checkpointed = false;  ///< ir::kCheckpoint

  ScanParts() = default;
  /// Moves the region out of the op.
  explicit ScanParts(ir::Op&& scan);
  /// The op, with its results as listed in carries and ys.
  ir::Op build() &&;

  /// A further y of this value; its stack. One that is there already is used again.
  ir::ValueId stack_of(ir::Program& program, ir::ValueId out);
  /// The region's argument for a step of this stack; one that is there already is used again.
  ir::ValueId step_of(ir::Program& program, ir::ValueId stack);
};

}  // namespace weft::passes

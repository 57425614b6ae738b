#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/program.h"

namespace weft::passes {

/// A map from values to T, by id; T() for values that were not set. Only pages that were written to take memory and
/// time, since a pass may have a map for each of a thousand loops.
template <typename T>
class ValueMap {
 public:
  T get(ir::ValueId value) const {
    const size_t page = value / kPage;
    return page >= pages_.size() || pages_[page] == kNone ? T() : entries_[pages_[page] + value % kPage];
  }
  T& operator[](ir::ValueId value) {
    const size_t page = value / kPage;
    if (page >= pages_.size()) pages_.resize(page + 1, kNone);
    if (pages_[page] == kNone) {
      pages_[page] = entries_.size();
      entries_.resize(entries_.size() + kPage);
    }
    return entries_[pages_[page] + value % kPage];
  }

 private:
  static constexpr size_t kPage = 256, kNone = ~size_t{0};

  std::vector<size_t> pages_;  ///< where in `entries_` each page begins
  std::vector<T> entries_;
};

/// Replacements of values by values; a value that was never set stands for itself.
class Substitution {
 public:
  /// The value that stands for `value` in the end (chains are followed, and shortened).
  ir::ValueId operator()(ir::ValueId value) const;
  void set(ir::ValueId from, ir::ValueId to) {
    if (from != to) to_[from] = to + 1;
  }
  bool contains(ir::ValueId value) const { return to_.get(value) != 0; }

 private:
  mutable ValueMap<ir::ValueId> to_;  ///< the value's id plus one; 0 for none
};

/// A set of values, as a bitmap over ids.
class ValueSet {
 public:
  bool contains(ir::ValueId value) const { return (words_.get(value / 64) >> (value % 64) & 1) != 0; }
  /// Adds the value. True iff it is new to the set.
  bool insert(ir::ValueId value) {
    uint64_t& word = words_[value / 64];
    const uint64_t before = std::exchange(word, word | uint64_t{1} << (value % 64));
    return before != word;
  }
  void erase(ir::ValueId value) {
    if (contains(value)) words_[value / 64] &= ~(uint64_t{1} << (value % 64));
  }

 private:
  ValueMap<uint64_t> words_;
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

/// A copy of the op that defines new values. Operands are replaced by `map`, which then maps the old results to the
/// new.
ir::Op clone(ir::Program& program, const ir::Op& op, Substitution& map);
ir::Block clone(ir::Program& program, const ir::Block& block, Substitution& map);

/// A note on an op: the number of the recorded operation that it is part of.
inline constexpr std::string_view kSourceOperation = "source.operation";

/// Ops that were written in place of one op are part of the same recorded operation.
void copy_note(const ir::Op& from, std::span<ir::Op> to);

/// A guess of how many bytes a value takes, to compare alternatives with: a symbol counts as 32.
int64_t estimated_bytes(const ir::Type& type);

/// The type of `length` stacked values of the type.
ir::Type stacked(const ir::Type& type, const ir::Dim& length);

/// A scan as parts that can be edited, and put together again. Each entry of carries, xs and ys holds the values that
/// belong together.
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
  /// Builds the op, with the results that carries and ys list.
  ir::Op build() &&;

  /// Adds a y for this value of the region, unless there is one. Returns its stack.
  ir::ValueId stack_of(ir::Program& program, ir::ValueId out);
  /// Adds an x for this stack, unless there is one. Returns the region's argument for it.
  ir::ValueId step_of(ir::Program& program, ir::ValueId stack);

 private:
  /// The index plus one in `ys` by out and in `xs` by stack, for the first `known_ys_` and `known_xs_` entries.
  ValueMap<uint32_t> y_of_, x_of_;
  size_t known_ys_ = 0, known_xs_ = 0;
};

/// Rewrites every use in the region in place.
void substitute(ScanParts& scan, const Substitution& with);

/// Removes the region's ops that nothing needs, and the xs that nothing reads then.
void drop_dead_ops(ScanParts& scan);

/// The operand that a result of a stop_gradient or custom_vjp is equal to. A custom_vjp's last operands are these
/// values.
inline ir::ValueId value_of(const ir::Op& op, size_t result) {
  return op.operands.at(op.operands.size() - op.results.size() + result);
}

/// Removes the stop_gradients and custom_vjps for which `which` holds, in regions too. The values that their results
/// are equal to take the results' place.
void replace_by_values(ir::Program& program, bool (*which)(const ir::Op&));

/// Whether two equal ops may become one, and one may become two. That adds up gradients before or after the op's
/// derivative, so it is false for a user's derivative that isn't linear.
inline bool is_repeatable(const ir::Op& op) {
  return ir::traits_of(op.code).marks != ir::Marks::kOwn || op.has("refuses") || op.attr_or<bool>("linear", false);
}

}  // namespace weft::passes

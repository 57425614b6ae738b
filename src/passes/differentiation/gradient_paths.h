#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// From which results of a program a gradient may get to which inputs. A gradient goes from a floating value to the
/// floating operands of its op, but through no stop_gradient:
///
///     program @p(%x: f32[B], %w: f32[B], %s: f32[B]) {
///       %u = stop_gradient %w : f32[B]
///       %y = mul %x, %u : f32[B]                        // %y -> %x
///       %a = floor %s : f32[B]                          // %a -> %s, although it is always zero
///       return %y, %a
///     }
///
/// The result of an op that nobody reads counts as read by every result: it may be what is left of an operation that
/// autograd sees a path through (`x.zero_()`), and a gradient of zeros in the place of none does less harm than none in
/// the place of zeros, which torch.autograd.grad takes for an error. So such a path can be written down (add_path).
///
/// An input that no gradient gets to has none, which is another thing than a gradient of zeros: autograd doesn't write
/// to its `.grad`, and an optimiser leaves it as it is. `%w` has none here, and `%s` has none where only %y has one.
class GradientPaths {
 public:
  using Inputs = std::vector<uint64_t>;  ///< a set of inputs, 64 a word; empty for the empty set

  explicit GradientPaths(const ir::Program& program);

  /// For each input, whether one of these results sends it a gradient.
  std::vector<bool> reached(const std::vector<bool>& results) const;

  /// For each result, whether its gradient reaches one of these inputs.
  std::vector<bool> reaching(const std::vector<bool>& inputs) const;

 private:
  std::vector<Inputs> by_result_;
  Inputs of_unread_;  ///< inputs of values that nobody reads
  size_t inputs_;
};

/// Lets a gradient of any result count as getting to the input: by a reader of it that nobody reads.
void add_path(ir::Program& program, ir::ValueId input);

/// Adds the paths that a change of the program has lost, because nobody read the values on them: so that each input to
/// which a gradient got before has one. `before`: the paths of the program as it was, with as many inputs and results.
void keep_paths(const GradientPaths& before, ir::Program& program);

}  // namespace weft::passes

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
/// the place of zeros, which torch.autograd.grad takes for an error. So such a path can be written down (a copy).
///
/// An input that no gradient gets to has none, which is another thing than a gradient of zeros: autograd doesn't write
/// to its `.grad`, and an optimiser leaves it as it is. `%w` has none here, and `%s` has none where only %y has one.
class GradientPaths {
 public:
  explicit GradientPaths(const ir::Program& program);

  /// For each input, whether a gradient gets to it from one of these results.
  std::vector<bool> reached(const std::vector<bool>& results) const;

 private:
  using Inputs = std::vector<uint64_t>;  ///< a set of inputs; empty for the empty set

  /// Marks the values of a block that something reads.
  void mark_read(const ir::Block& block);
  void follow(const ir::Block& block);
  void follow(const ir::Op& op);
  void follow_scan(const ir::Op& scan);
  /// Adds all that a region reads, from outside as well.
  void add_read(const ir::Block& region, Inputs& inputs) const;
  /// Whether `inputs` grew.
  static bool add(const Inputs& more, Inputs& inputs);
  bool carries_gradient(ir::ValueId value) const { return is_floating(program_->type(value).dtype); }

  const ir::Program* program_;    ///< read by the constructor only
  std::vector<Inputs> by_value_;  ///< emptied at its end
  std::vector<bool> is_read_;     ///< by value; emptied too
  Inputs of_unread_;              ///< inputs of values that nobody reads
  std::vector<Inputs> by_result_;
  size_t inputs_;
};

}  // namespace weft::passes

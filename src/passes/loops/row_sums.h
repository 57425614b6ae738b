#pragma once

#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::passes {

/// Sums over rows and steps of values that no stack holds. A carry of the value's shape adds them up over the steps,
/// each element for itself, and its rows are summed behind the loop:
///
///     %r = reduce_sum %v {dims = [0]}, %s2 = add %s, %r     %s: f32[8]
/// becomes
///     %a2 = add %a, %v                                      %a: f32[B,8], zeros at first
///     ... } and behind the loop   %sT = reduce_sum %aT {dims = [0]}
///
/// Rows stay independent of each other, as they would not with %s, and the carry stays in a cache, where the stack of
/// %v (f32[T,B,8]) is written to memory and read again. Values of 16 bits are added up in f32.
class RowSums {
 public:
  /// Ops in front of the scan go to `before`, those behind it to `after`.
  RowSums(ir::Program& program, ir::Block& before, ir::Builder& after)
      : program_(program), before_(program, before), after_(after) {}

  /// The sum of a floating value of the region over all steps, and over `dims` within each step.
  ir::ValueId sum(ir::ValueId value, const std::vector<int64_t>& dims);

  /// Adds the carries and their ops to the scan.
  void add_to(ScanParts& scan);

 private:
  ir::ValueId carried(ir::ValueId value);

  ir::Program& program_;
  ir::Builder before_;
  ir::Builder& after_;
  std::vector<ScanParts::Carry> carries_;
  ir::Block ops_;
  std::unordered_map<ir::ValueId, ir::ValueId> sums_;  ///< by value: its sum over the steps
};

}  // namespace weft::passes

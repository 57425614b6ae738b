#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// The product of sizes that are only estimated or not needed where they don't fit: a number that overflows is the
/// largest there is.
ir::Dim bounded_product(const ir::Dim& a, const ir::Dim& b);

/// Adds up how much work ops are: multiply-adds of products, for other ops a few an element. Numbers
/// too large for 64 bits count as the largest: loops in loops soon are (while loops are guessed to take 16 steps).
class WorkCounter {
 public:
  explicit WorkCounter(const Schedule& schedule) : schedule_(schedule), program_(*schedule.program) {}

  void count(const ir::Op& op) { count(op, ir::Dim(1), nullptr); }
  /// The terms of the sum.
  std::vector<runtime::DimExpr> take() { return std::move(terms_); }

 private:
  /// `repeats` times, or, on the rows of a ragged scan, for all its steps together.
  void count(const ir::Op& op, const ir::Dim& repeats, const ir::Ragged* ragged);
  void count_scan(const ir::Op& op, const ir::Dim& repeats);
  /// Both branches of a cond, and some steps of a while.
  void count_regions(const ir::Op& op, const ir::Dim& repeats);
  ir::Shape shape_of(ir::ValueId value, const ir::Ragged* ragged) const;

  const Schedule& schedule_;
  const ir::Program& program_;
  std::vector<runtime::DimExpr> terms_;
};

}  // namespace weft::planning

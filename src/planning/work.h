#pragma once

#include <span>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// The product of two sizes that are only estimates, or whose exact value doesn't matter if it overflows. A number that
/// overflows becomes the largest integer.
ir::Dim bounded_product(const ir::Dim& a, const ir::Dim& b);

/// The product of the dims, as bounded_product.
ir::Dim bounded_count(std::span<const ir::Dim> dims);

/// The cost model's count of work: multiply-adds of products, and a few for each element of other ops. A while is
/// guessed to take 16 steps. Numbers beyond 64 bits, which nested loops soon reach, count as the largest number.
class WorkCounter {
 public:
  explicit WorkCounter(Schedule& schedule) : schedule_(schedule), program_(*schedule.program) {}

  void count(const ir::Op& op) { count(op, ir::Dim(1), nullptr); }
  /// The terms of the sum.
  std::vector<runtime::DimExpr> take() { return std::move(terms_); }

 private:
  /// Counts the op `repeats` times; an op on the rows of a ragged scan once, for the rows of all steps.
  void count(const ir::Op& op, const ir::Dim& repeats, const ir::Ragged* ragged);
  void count_scan(const ir::Op& op, const ir::Dim& repeats);
  /// Counts both branches of a cond, and some steps of a while.
  void count_regions(const ir::Op& op, const ir::Dim& repeats);
  ir::Shape shape_of(ir::ValueId value, const ir::Ragged* ragged) const;

  Schedule& schedule_;
  const ir::Program& program_;
  std::vector<runtime::DimExpr> terms_;
};

}  // namespace weft::planning

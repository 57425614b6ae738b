#pragma once

#include <vector>

#include "codegen/schedule.h"

namespace weft::codegen {

/// Adds up how much work ops are: multiply-adds of products, for other ops a few an element.
class WorkCounter {
 public:
  explicit WorkCounter(const Schedule& schedule) : schedule_(schedule), program_(*schedule.program) {}

  void count(const ir::Op& op) { count(op, ir::Dim(1), nullptr); }
  /// The terms of the sum.
  std::vector<runtime::DimExpr> take() { return std::move(terms_); }

 private:
  /// `times` over, or, on the rows of a ragged scan, for all its steps together.
  void count(const ir::Op& op, const ir::Dim& times, const ir::Ragged* ragged);
  void count_scan(const ir::Op& op, const ir::Dim& times);
  /// Both branches of a cond, and some steps of a while.
  void count_regions(const ir::Op& op, const ir::Dim& times);
  ir::Shape shape_of(ir::ValueId value, const ir::Ragged* ragged) const;

  const Schedule& schedule_;
  const ir::Program& program_;
  std::vector<runtime::DimExpr> terms_;
};

}  // namespace weft::codegen

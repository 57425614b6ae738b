#pragma once

#include <optional>
#include <vector>

#include "interpreter/interpreter.h"
#include "interpreter/kernels.h"

namespace weft::interpreter {

/// Runs the ops of blocks. It keeps the memory of every value from one step of a scan to the next.
class Evaluator {
 public:
  Evaluator(const ir::Program& program, const ir::Bindings& bindings, const Captured& captured)
      : program_(program), bindings_(bindings), captured_(captured) {}

  /// The contents of a value that was set, computed or captured.
  View view(ir::ValueId id);
  void set(ir::ValueId id, View view);
  void run_ops(const ir::Block& block);
  void run_op(const ir::Op& op);
  void run_scan(const Call& call);
  void run_ragged_scan(const Call& call);
  void run_cond(const Call& call);
  void run_while(const Call& call);
  void run_kernel(const Call& call);
  int64_t value_of(const ir::Dim& dim) const { return ir::evaluate(dim, bindings_); }

 private:
  /// Allocates the tables on first use, since running one plain op needs none.
  void make_room();

  const ir::Program& program_;
  const ir::Bindings& bindings_;
  const Captured& captured_;
  std::vector<std::optional<View>> views_;    ///< by value
  std::vector<std::optional<Array>> memory_;  ///< by value: results of ops
};

}  // namespace weft::interpreter

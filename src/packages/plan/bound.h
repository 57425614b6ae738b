#pragma once

#include <map>
#include <optional>

#include "packages/step_model.h"

namespace weft::packages {

/// The sizes of a value, which in a bound step are all numbers.
std::vector<int64_t> sizes_of(const ir::Program& program, ir::ValueId value);

/// A step as it is compiled: every size is a number, its weights are constants, and whatever depends on weights only is
/// computed. Passes have run. The program takes states, then inputs. A result is never an argument or a constant itself
/// but a copy of it.
class Bound {
 public:
  /// User's error if the arguments don't fit the program, or if an op of it has no form in a package.
  explicit Bound(const StepModel& model);

  const ir::Program& program() const { return program_; }
  size_t states() const { return states_; }
  size_t inputs() const { return inputs_; }
  /// What the left operands of products are rounded to (StepModel).
  DType activations() const { return activations_; }
  /// The op that computes a value; null for an argument.
  const ir::Op* op_of(ir::ValueId value) const { return makers_[value]; }
  /// The argument's number; none for weights and for values that are no arguments.
  std::optional<size_t> argument(ir::ValueId value) const;

  bool is_constant(ir::ValueId value) const { return is_constant_[value]; }
  /// A constant's elements, computed when somebody asks for the first time.
  const interpreter::Array& constant(ir::ValueId value) const;
  /// One element of a constant of a floating type or integers, as f64. Broadcasts are read through.
  double element(ir::ValueId value, std::vector<int64_t> at) const;

 private:
  void index();

  ir::Program program_;
  size_t states_, inputs_;
  DType activations_;
  std::vector<const ir::Op*> makers_;
  std::vector<bool> is_constant_, is_known_;  ///< can be read as constants; can be computed now (results of the step
                                              ///< too)
  mutable std::map<ir::ValueId, interpreter::Array> constants_;
};

}  // namespace weft::packages

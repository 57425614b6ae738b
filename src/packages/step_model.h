#pragma once

#include <string>
#include <vector>

#include "interpreter/array.h"
#include "ir/program.h"

namespace weft::packages {

/// Everything that a package is made of: a step with its weights and names.
struct StepModel {
  std::string name;                        ///< an identifier of C, the prefix of all names in the package
  ir::Program program;                     ///< (states..., inputs..., weights...) -> (new states..., outputs...)
  std::vector<interpreter::Array> states;  ///< their values at a start
  std::vector<ir::Type> inputs;            ///< of the step, without symbols
  std::vector<interpreter::Array> weights;
  std::vector<std::string> state_names, input_names, output_names;
  DType stored = DType::kF32;  ///< of weights of products in f32 in the object: f32, or i8, bf16, f16 (StoredWeights)
  DType activations = DType::kF32;  ///< of these products: f32, or i8 (StoredWeights), which stores the weights as i8
};

}  // namespace weft::packages

#pragma once

#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// A program split for reverse-mode differentiation.
///
/// `forward` (inputs) -> (outputs..., residuals...): the program's own outputs first, then what only the backward needs.
/// `backward` (saved inputs..., saved outputs..., residuals..., cotangents of all outputs...) -> one cotangent for each
/// wanted input, in order. Inputs and outputs that the backward reads are passed as they are, never copied into residuals.
/// A cotangent of an integer or bool output is an argument too (of that dtype, ignored), so that positions are fixed.
struct Vjp {
  ir::Program forward;
  ir::Program backward;
  std::vector<int64_t> saved_inputs;   ///< indices of the program's inputs
  std::vector<int64_t> saved_outputs;  ///< indices of the program's outputs
  int64_t residuals = 0;
};

/// What the forward of a scan keeps. kBalanced: results of products and transcendentals are kept, cheap elementwise values
/// are recomputed from what is kept anyway. kMinimal: only carries are kept, everything else in a step is recomputed.
enum class Keep { kBalanced, kMinimal };

/// `wanted[i]`: whether the cotangent of input i is asked for; a wanted input must be floating (user's error otherwise).
Vjp vjp(const ir::Program& program, const std::vector<bool>& wanted, Keep keep = Keep::kBalanced);

/// (inputs..., cotangents of all outputs...) -> one cotangent for each wanted input: recomputes the forward, so it can be
/// differentiated again with respect to inputs and cotangents alike.
ir::Program vjp_of_primals(const ir::Program& program, const std::vector<bool>& wanted);

}  // namespace weft::passes

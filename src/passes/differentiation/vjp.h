#pragma once

#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// A program split for reverse-mode differentiation.
///
/// `forward` (inputs) -> (outputs..., residuals...): the program's own outputs first, then what only the backward
/// needs. `backward` (saved inputs..., saved outputs..., residuals..., cotangents of all outputs...) -> one cotangent
/// for each wanted input, in order. Inputs and outputs that the backward reads are passed as they are, never copied
/// into residuals. A cotangent of an integer or bool output is an argument too (of that dtype, ignored), so that
/// positions are fixed.
struct Vjp {
  ir::Program forward;
  ir::Program backward;
  std::vector<int64_t> saved_inputs;   ///< indices of the program's inputs
  std::vector<int64_t> saved_outputs;  ///< indices of the program's outputs
  int64_t residuals = 0;
};

/// Which values of a step the forward of a scan keeps for the backward. kBalanced: results of products and
/// transcendentals; cheap elementwise values are recomputed from them. kMinimal: carries and results of scans inside
/// the step; all else is recomputed. kCheckpoint: carries only.
enum class Keep { kBalanced, kMinimal, kCheckpoint };

/// Differentiates a program, through scans. The derivative of a scan is a scan in the other direction. Its carries are
/// the cotangents of the carries, and for each captured value a sum, which `sink` later moves out of the loop.
///
///     %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) { %n = tanh (add (matmul %h, %w), %xt) ... }
/// gives
///     %hT, %ys, %hs = scan ... yield carry(%n) ys(%n, %h)                          // forward: also the states before
///     %dh0, %dw, %dx = scan reverse length T carry(%dh = %d_hT, %sw = 0) xs(%dy = %d_ys, %n = %ys, %ht = %hs) {
///       %da = mul (add %dy, %dh), (sub 1, (mul %n, %n))
///       yield carry((matmul %da, %w {transpose_b = true}), (add %sw, (outer %ht, %da))) ys(%da)
///     }
///
/// Canonicalises and hoists the program first, and tidies both results. Stands before the pipeline, which compiles the
/// results like any other program.
///
/// Results take no input's memory, in none of the programs (ir::Donation).
///
/// `wanted[i]`: whether the cotangent of input i is asked for; a wanted input must be floating (user's error
/// otherwise).
Vjp vjp(const ir::Program& program, const std::vector<bool>& wanted, Keep keep = Keep::kBalanced);

/// (inputs..., cotangents of all outputs...) -> one cotangent for each wanted input: recomputes the forward, so it can
/// be differentiated again with respect to inputs and cotangents alike.
ir::Program vjp_of_primals(const ir::Program& program, const std::vector<bool>& wanted);

/// (inputs..., cotangents of all outputs...) -> (outputs..., one cotangent for each wanted input): forward and backward
/// in one program, for a compiler that plans both together.
ir::Program value_and_vjp(const ir::Program& program, const std::vector<bool>& wanted);

/// Forward mode: (inputs..., one tangent for each varied input) -> the tangents of the floating outputs, in order.
/// vjp_of_primals is linear in the cotangents; this is its derivative by them, and can be differentiated again. A
/// varied input must be floating (user's error otherwise).
ir::Program jvp_of_primals(const ir::Program& program, const std::vector<bool>& varied);

}  // namespace weft::passes

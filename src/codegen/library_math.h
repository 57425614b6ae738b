#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "ir/program.h"

namespace weft::codegen {

/// Whether the function is computed in f32 throughout.
constexpr bool is_narrow(ir::OpCode code) { return code == ir::OpCode::kErf || code == ir::OpCode::kLog1p; }

/// The largest |x| for which emit_library_function() computes sine and cosine correctly.
inline constexpr double kMostTurned = 1e6;

/// A function of C's library (sin, pow, erf and others) on one or two vectors of f32. It is computed in f64 and rounded
/// to f32 at the end, within 1 unit in the last place; erf and log1p are computed in f32, within 2. At the edges
/// results are C's. Sine and cosine beyond kMostTurned return any number. Null for a function without such a form
/// (rem).
llvm::Value* emit_library_function(llvm::IRBuilder<>& b, ir::OpCode code, std::span<llvm::Value* const> operands);

/// The function on vectors of f64, in f64, within 2 units in the last place (log1p 3, hypot 4). log(exp(x) + exp(y))
/// has an error of 2 units of the larger of |x|, |y| and 1. At the edges results are C's. Null for sin, cos, rem, pow,
/// erf and erfc, which take more digits than f64 has, or rare cases (packages/math).
llvm::Value* emit_double_function(llvm::IRBuilder<>& b, ir::OpCode code, std::span<llvm::Value* const> operands);

/// x = n pi/2 + rest with |rest| <= pi/4, of f64. The two lowest bits of the i64 `quadrant` are those of n.
struct Turn {
  llvm::Value *rest, *quadrant;
};
/// Right for |x| <= kMostTurned, NaN for infinities and NaN. `precise`: the rest is rounded once for every f64, also
/// beside a multiple of pi/2; else for every f32.
Turn emit_turn(llvm::IRBuilder<>& b, llvm::Value* x, bool precise);
/// sin(x), or cos(x) as the sine of a quadrant more.
llvm::Value* emit_sine(llvm::IRBuilder<>& b, const Turn& turn, bool cosine);

/// C's pow(x, y), of f64, by |x|^y.
llvm::Value* emit_power_edges(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, llvm::Value* result);

}  // namespace weft::codegen

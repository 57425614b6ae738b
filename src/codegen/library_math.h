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
/// has an error of 2 units of the larger of |x|, |y| and 1. At the edges results are C's. Sine and cosine beyond
/// kMostTurned return any number. Null for rem, and for pow, erf and erfc, which would have to be computed in a type
/// wider than f64.
llvm::Value* emit_double_function(llvm::IRBuilder<>& b, ir::OpCode code, std::span<llvm::Value* const> operands);

}  // namespace weft::codegen

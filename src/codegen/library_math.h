#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "ir/program.h"

namespace weft::codegen {

/// Whether the function is computed in f32 throughout.
constexpr bool is_narrow(ir::OpCode code) { return code == ir::OpCode::kErf || code == ir::OpCode::kLog1p; }

/// The largest number of which emit_library_function() has the right sine and cosine.
inline constexpr double kMostTurned = 1e6;

/// A function that C has in its library (sin, pow, erf and others) of one or two vectors of f32, as arithmetic in f64
/// that is rounded to f32 at the end (erf and log1p in f32): within 1 unit in the last place, those two within 2, with
/// C's results at the edges. For a sine or cosine of more than kMostTurned the result is any number. Null for a
/// function without such a form (rem).
llvm::Value* emit_library_function(llvm::IRBuilder<>& b, ir::OpCode code, std::span<llvm::Value* const> operands);

}  // namespace weft::codegen

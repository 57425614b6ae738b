#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "ir/program.h"
#include "packages/target.h"

namespace weft::packages {

/// codegen::emit_elementwise without library calls: ops without an instruction on the target become arithmetic.
/// Functions that are calls elsewhere (sin, pow, erf and others) are computed in f64 and rounded to f32, within 1 unit
/// in the last place. sin, cos and remainders add blocks for large operands. `alone`: few vectors are computed at a
/// time, so that latency counts and not throughput.
llvm::Value* emit_without_library(llvm::IRBuilder<>& b, const Target& target, const ir::Op& op, DType from, DType to,
                                  std::span<llvm::Value* const> operands, bool alone);

}  // namespace weft::packages

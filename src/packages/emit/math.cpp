#include "packages/emit/math.h"

#include <llvm/IR/Intrinsics.h>

#include <span>

#include "codegen/few_vectors.h"
#include "codegen/float_ops.h"
#include "codegen/half.h"
#include "codegen/library_math.h"
#include "codegen/pointwise.h"
#include "codegen/vector_math.h"
#include "packages/math/double_functions.h"
#include "packages/math/remainder.h"
#include "packages/math/single_functions.h"
#include "packages/math/turns.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::number, codegen::round_even;
using ir::OpCode;
using llvm::IRBuilder;
using llvm::Value;

Value* floor(IRBuilder<>& b, Value* x) {
  Value* nearest = round_even(b, x);
  Value* lower = b.CreateFSub(nearest, number(x, 1));
  return b.CreateCopySign(b.CreateSelect(b.CreateFCmpOGT(nearest, x), lower, nearest), x);
}

Value* ceil(IRBuilder<>& b, Value* x) { return b.CreateFNeg(floor(b, b.CreateFNeg(x))); }

Value* trunc(IRBuilder<>& b, Value* x) { return b.CreateCopySign(floor(b, absolute(b, x)), x); }

/// Functions of C's library in f64.
Value* double_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  switch (code) {
    case OpCode::kSin:
    case OpCode::kCos:
      return emit_sine(b, operands[0], code == OpCode::kCos, false);
    case OpCode::kRem:
      return emit_remainder(b, operands[0], operands[1], false);
    case OpCode::kPow:
      return emit_double_power(b, operands[0], operands[1]);
    case OpCode::kErf:
      return emit_double_erf(b, operands[0]);
    case OpCode::kErfc:
      return emit_double_erfc(b, operands[0]);
    default:
      return codegen::emit_double_function(b, code, operands);
  }
}

/// In f32: most of them computed in f64, where the target does that fast.
Value* single_function(IRBuilder<>& b, const Target& target, OpCode code, std::span<Value* const> operands) {
  if (!target.wide_functions)
    if (Value* result = emit_single_function(b, code, operands)) return result;
  llvm::Type* type = operands[0]->getType();
  const auto widened = [&](Value* value) { return b.CreateFPExt(value, type->getWithNewType(b.getDoubleTy())); };
  switch (code) {
    case OpCode::kSin:
    case OpCode::kCos:
      return b.CreateFPTrunc(emit_sine(b, widened(operands[0]), code == OpCode::kCos, true), type);
    case OpCode::kRem:
      return b.CreateFPTrunc(emit_remainder(b, widened(operands[0]), widened(operands[1]), true), type);
    default:
      return codegen::emit_library_function(b, code, operands);
  }
}

Value* library_function(IRBuilder<>& b, const Target& target, OpCode code, std::span<Value* const> operands) {
  const bool wide = operands[0]->getType()->getScalarType()->isDoubleTy();
  Value* result = wide ? double_function(b, code, operands) : single_function(b, target, code, operands);
  internal_check(result != nullptr, "packages have no form of {}", ir::info(code).name);
  return result;
}

/// floor and similar ops where the target has no instruction; null for other ops.
Value* rounding(IRBuilder<>& b, OpCode code, Value* x) {
  switch (code) {
    case OpCode::kFloor:
      return floor(b, x);
    case OpCode::kCeil:
      return ceil(b, x);
    case OpCode::kTrunc:
      return trunc(b, x);
    case OpCode::kRound:
      return round_even(b, x);
    default:
      return nullptr;
  }
}

}  // namespace

Value* emit_without_library(IRBuilder<>& b, const Target& target, const ir::Op& op, DType from, DType to,
                            std::span<Value* const> operands, bool alone) {
  if (alone && to == DType::kF32 && op.code == OpCode::kSigmoid) return codegen::emit_sigmoid_alone(b, operands[0]);
  if (alone && to == DType::kF32 && op.code == OpCode::kTanh) return codegen::emit_tanh_alone(b, operands[0]);
  if (ir::traits_of(op.code).by_library && is_floating(to)) {
    Value* result = library_function(b, target, op.code, operands);
    return is_half(to) ? codegen::emit_round_to_half(b, result, to) : result;
  }
  const bool rounds = target.rounds && (target.rounds_to_even || op.code != OpCode::kRound);
  if (!rounds && is_floating(to))
    if (Value* result = rounding(b, op.code, operands[0])) return result;
  return codegen::emit_elementwise(b, op, from, to, operands);
}

}  // namespace weft::packages

#include "packages/emit/math.h"

#include <llvm/IR/Intrinsics.h>

#include <span>

#include "codegen/few_vectors.h"
#include "codegen/float_ops.h"
#include "codegen/half.h"
#include "codegen/library_math.h"
#include "codegen/pointwise.h"
#include "codegen/vector_math.h"

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

/// The remainder in f64, for a result in f32.
Value* remainder(IRBuilder<>& b, Value* x, Value* y) {
  Value *size = absolute(b, x), *divisor = absolute(b, y), *zero = number(x, 0);
  Value* quotient = floor(b, b.CreateFDiv(size, divisor));
  Value* rest = b.CreateFSub(size, b.CreateFMul(quotient, divisor));
  rest = b.CreateSelect(b.CreateFCmpOLT(rest, zero), b.CreateFAdd(rest, divisor), rest);
  rest = b.CreateSelect(b.CreateFCmpOGE(rest, divisor), b.CreateFSub(rest, divisor), rest);
  Value* exact = b.CreateFCmpOLT(quotient, number(x, 0x1p29));
  rest = b.CreateSelect(exact, rest, llvm::ConstantFP::getNaN(x->getType()));
  rest = b.CreateSelect(b.CreateFCmpOLT(size, divisor), size, rest);  // of an infinite divisor too
  return b.CreateCopySign(rest, x);
}

Value* library_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  if (Value* result = codegen::emit_library_function(b, code, operands)) {
    if (code != OpCode::kSin && code != OpCode::kCos) return result;
    Value* small = b.CreateFCmpOLE(absolute(b, operands[0]), number(operands[0], codegen::kMostTurned));
    return b.CreateSelect(small, result, llvm::ConstantFP::getNaN(result->getType()));
  }
  internal_check(code == OpCode::kRem, "packages have no form of {}", ir::info(code).name);
  llvm::Type* narrow = operands[0]->getType();
  llvm::Type* wide = narrow->getWithNewType(b.getDoubleTy());
  Value* rest = remainder(b, b.CreateFPExt(operands[0], wide), b.CreateFPExt(operands[1], wide));
  return b.CreateFPTrunc(rest, narrow);
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
    Value* result = library_function(b, op.code, operands);
    return is_half(to) ? codegen::emit_round_to_half(b, result, to) : result;
  }
  if (!target.rounds && is_floating(to))
    if (Value* result = rounding(b, op.code, operands[0])) return result;
  return codegen::emit_elementwise(b, op, from, to, operands);
}

}  // namespace weft::packages

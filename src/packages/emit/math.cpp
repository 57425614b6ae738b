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

/// size - quotient * divisor, exactly, for a whole quotient below 2^50: the product in two parts, of parts of the
/// factors whose products have no more bits than f64 (Dekker).
Value* rest_of(IRBuilder<>& b, Value* size, Value* quotient, Value* divisor) {
  Value* above = b.CreateFMul(round_even(b, b.CreateFMul(quotient, number(size, 0x1p-26))), number(size, 0x1p26));
  Value* below = b.CreateFSub(quotient, above);
  llvm::Type* integers = size->getType()->getWithNewType(b.getInt64Ty());
  Value* mask = llvm::ConstantInt::getSigned(integers, -(int64_t{1} << 26));
  Value* front = b.CreateBitCast(b.CreateAnd(b.CreateBitCast(divisor, integers), mask), size->getType());
  Value* back = b.CreateFSub(divisor, front);
  Value* product = b.CreateFMul(quotient, divisor);
  Value* lost = b.CreateFSub(product, b.CreateFMul(above, front));
  lost = b.CreateFSub(lost, b.CreateFMul(above, back));
  lost = b.CreateFSub(lost, b.CreateFMul(below, front));
  lost = b.CreateFSub(lost, b.CreateFMul(below, back));
  return b.CreateFAdd(b.CreateFSub(size, product), lost);
}

/// The remainder in f64, of a quotient below `most`. `exact`: the divisor has more bits than an f32.
Value* remainder(IRBuilder<>& b, Value* x, Value* y, double most, bool exact) {
  Value *size = absolute(b, x), *divisor = absolute(b, y), *zero = number(x, 0);
  Value* quotient = floor(b, b.CreateFDiv(size, divisor));
  Value* rest = exact ? rest_of(b, size, quotient, divisor) : b.CreateFSub(size, b.CreateFMul(quotient, divisor));
  rest = b.CreateSelect(b.CreateFCmpOLT(rest, zero), b.CreateFAdd(rest, divisor), rest);
  rest = b.CreateSelect(b.CreateFCmpOGE(rest, divisor), b.CreateFSub(rest, divisor), rest);
  Value* known = b.CreateFCmpOLT(quotient, number(x, most));
  rest = b.CreateSelect(known, rest, llvm::ConstantFP::getNaN(x->getType()));
  rest = b.CreateSelect(b.CreateFCmpOLT(size, divisor), size, rest);  // of an infinite divisor too
  return b.CreateCopySign(rest, x);
}

Value* library_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  llvm::Type* type = operands[0]->getType();
  const bool wide = type->getScalarType()->isDoubleTy();
  if (Value* result =
          wide ? codegen::emit_double_function(b, code, operands) : codegen::emit_library_function(b, code, operands)) {
    if (code != OpCode::kSin && code != OpCode::kCos) return result;
    Value* small = b.CreateFCmpOLE(absolute(b, operands[0]), number(operands[0], codegen::kMostTurned));
    return b.CreateSelect(small, result, llvm::ConstantFP::getNaN(result->getType()));
  }
  internal_check(code == OpCode::kRem, "packages have no form of {}", ir::info(code).name);
  if (wide) return remainder(b, operands[0], operands[1], 0x1p50, true);
  llvm::Type* doubles = type->getWithNewType(b.getDoubleTy());
  const auto widened = [&](Value* value) { return b.CreateFPExt(value, doubles); };
  return b.CreateFPTrunc(remainder(b, widened(operands[0]), widened(operands[1]), 0x1p29, false), type);
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

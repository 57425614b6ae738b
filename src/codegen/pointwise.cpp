#include "codegen/pointwise.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include "codegen/half.h"
#include "codegen/isa.h"
#include "codegen/library_math.h"
#include "codegen/vector_math.h"

namespace weft::codegen {
namespace {

using ir::OpCode;
using llvm::IRBuilder;
using llvm::Value;

bool is_float(Value* v) { return v->getType()->isFPOrFPVectorTy(); }

Value* zero(Value* like) { return llvm::Constant::getNullValue(like->getType()); }

Value* one(Value* like) {
  return is_float(like) ? llvm::ConstantFP::get(like->getType(), 1.0) : llvm::ConstantInt::get(like->getType(), 1);
}

llvm::AllocaInst* entry_alloca(IRBuilder<>& b, llvm::Type* type) {
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  IRBuilder<> at_entry(&entry, entry.begin());
  llvm::AllocaInst* slot = at_entry.CreateAlloca(type);
  slot->setAlignment(llvm::Align(64));
  return slot;
}

/// Calls a function of runtime/scalar_functions.def, which does an element at a time.
Value* through_library(IRBuilder<>& b, const ir::Op& op, std::span<Value* const> operands) {
  llvm::Type* type = operands[0]->getType();
  auto* vector = llvm::cast<llvm::FixedVectorType>(type);
  bool wide = type->getScalarType()->isDoubleTy();
  std::string name = "weft_" + std::string(info(op.code).name) + (wide ? "_f64" : "_f32");
  llvm::Type* pointer = b.getPtrTy();
  llvm::Module& module = *b.GetInsertBlock()->getModule();
  auto callee = module.getOrInsertFunction(
      name, llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, b.getInt64Ty()}, false));
  Value* first = entry_alloca(b, type);
  b.CreateAlignedStore(operands[0], first, llvm::Align(64));
  Value* second = first;
  if (operands.size() > 1) {
    second = entry_alloca(b, type);
    b.CreateAlignedStore(operands[1], second, llvm::Align(64));
  }
  b.CreateCall(callee, {first, second, b.getInt64(vector->getNumElements())});
  return b.CreateAlignedLoad(type, first, llvm::Align(64));
}

/// Whether a lane is so large that its sine takes more digits of pi than the inline code has.
Value* is_beyond(IRBuilder<>& b, Value* x) {
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  return b.CreateOrReduce(b.CreateFCmpOGT(size, llvm::ConstantFP::get(x->getType(), kMostTurned)));
}

/// In registers of f64, as many as they take.
Value* inline_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  const auto lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(operands[0]->getType())->getNumElements());
  const int wide_lanes = vector_isa(b).avx512 ? 8 : 4;
  if (lanes <= wide_lanes || lanes % 2 != 0 || code == OpCode::kErf) return emit_library_function(b, code, operands);
  Value* parts[2];
  for (int part = 0; part < 2; ++part) {
    llvm::SmallVector<int> places;
    for (int i = 0; i < lanes / 2; ++i) places.push_back(part * (lanes / 2) + i);
    llvm::SmallVector<Value*> halves;
    for (Value* operand : operands) halves.push_back(b.CreateShuffleVector(operand, places));
    parts[part] = inline_function(b, code, halves);
    if (parts[part] == nullptr) return nullptr;
  }
  llvm::SmallVector<int> all;
  for (int i = 0; i < lanes; ++i) all.push_back(i);
  return b.CreateShuffleVector(parts[0], parts[1], all);
}

Value* library_function(IRBuilder<>& b, const ir::Op& op, std::span<Value* const> operands) {
  if (operands[0]->getType()->getScalarType()->isDoubleTy()) return through_library(b, op, operands);
  Value* result = inline_function(b, op.code, operands);
  if (result == nullptr) return through_library(b, op, operands);
  if (op.code != OpCode::kSin && op.code != OpCode::kCos) return result;
  Value* beyond = is_beyond(b, operands[0]);
  llvm::BasicBlock* here = b.GetInsertBlock();
  llvm::Function* function = here->getParent();
  auto* rare = llvm::BasicBlock::Create(b.getContext(), "beyond", function);
  auto* after = llvm::BasicBlock::Create(b.getContext(), "after", function);
  b.CreateCondBr(beyond, rare, after);
  b.SetInsertPoint(rare);
  Value* called = through_library(b, op, operands);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  llvm::PHINode* either = b.CreatePHI(result->getType(), 2);
  either->addIncoming(result, here);
  either->addIncoming(called, rare);
  return either;
}

Value* emit_sign(IRBuilder<>& b, Value* x, DType dtype) {
  if (dtype == DType::kBool) return x;
  Value* above = is_float(x) ? b.CreateFCmpOGT(x, zero(x)) : b.CreateICmpSGT(x, zero(x));
  Value* below = is_float(x) ? b.CreateFCmpOLT(x, zero(x)) : b.CreateICmpSLT(x, zero(x));
  Value* minus = is_float(x) ? b.CreateFNeg(one(x)) : b.CreateNeg(one(x));
  return b.CreateSelect(above, one(x), b.CreateSelect(below, minus, zero(x)));
}

Value* emit_cast(IRBuilder<>& b, Value* x, DType from, DType to) {
  llvm::Type* type = x->getType()->getWithNewType(register_type(b, to));
  if (from == to) return x;
  if (to == DType::kBool) return is_float(x) ? b.CreateFCmpUNE(x, zero(x)) : b.CreateICmpNE(x, zero(x));
  if (is_floating(from) && is_floating(to)) return b.CreateFPCast(x, type);
  if (is_floating(to)) return from == DType::kBool ? b.CreateUIToFP(x, type) : b.CreateSIToFP(x, type);
  if (is_floating(from)) return b.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {type, x->getType()}, {x});
  return b.CreateIntCast(x, type, from != DType::kBool);
}

Value* emit_unary(IRBuilder<>& b, OpCode code, DType from, Value* x, bool coarse) {
  switch (code) {
    case OpCode::kCopy:
    case OpCode::kStopGradient:
      return x;
    case OpCode::kNeg:
      return is_float(x) ? b.CreateFNeg(x) : b.CreateNeg(x);
    case OpCode::kAbs:
      return is_float(x) ? b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)
                         : (from == DType::kBool ? x : b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse()));
    case OpCode::kSign:
      return emit_sign(b, x, from);
    case OpCode::kExp:
      return emit_exp(b, x);
    case OpCode::kLog:
      return emit_log(b, x);
    case OpCode::kExpm1:
      return emit_expm1(b, x);
    case OpCode::kTanh:
      return emit_tanh(b, x, coarse);
    case OpCode::kSigmoid:
      return emit_sigmoid(b, x, coarse);
    case OpCode::kSqrt:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case OpCode::kRsqrt:
      return b.CreateFDiv(one(x), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    case OpCode::kFloor:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case OpCode::kCeil:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case OpCode::kTrunc:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case OpCode::kRound:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case OpCode::kRelu:
      return is_float(x) ? b.CreateSelect(b.CreateFCmpOLE(x, zero(x)), zero(x), x)
                         : b.CreateSelect(b.CreateICmpSLE(x, zero(x)), zero(x), x);
    case OpCode::kNot:
      return b.CreateNot(x);
    default:
      internal_error("no machine code for {}", info(code).name);
  }
}

Value* emit_comparison(IRBuilder<>& b, OpCode code, DType from, Value* x, Value* y) {
  bool real = is_float(x), is_unsigned = from == DType::kBool;
  switch (code) {
    case OpCode::kEq:
      return real ? b.CreateFCmpOEQ(x, y) : b.CreateICmpEQ(x, y);
    case OpCode::kNe:
      return real ? b.CreateFCmpUNE(x, y) : b.CreateICmpNE(x, y);
    case OpCode::kLt:
      return real ? b.CreateFCmpOLT(x, y) : (is_unsigned ? b.CreateICmpULT(x, y) : b.CreateICmpSLT(x, y));
    case OpCode::kLe:
      return real ? b.CreateFCmpOLE(x, y) : (is_unsigned ? b.CreateICmpULE(x, y) : b.CreateICmpSLE(x, y));
    case OpCode::kGt:
      return emit_comparison(b, OpCode::kLt, from, y, x);
    case OpCode::kGe:
      return emit_comparison(b, OpCode::kLe, from, y, x);
    default:
      return nullptr;
  }
}

Value* emit_binary(IRBuilder<>& b, OpCode code, DType from, Value* x, Value* y) {
  if (Value* comparison = emit_comparison(b, code, from, x, y)) return comparison;
  bool real = is_float(x), boolean = from == DType::kBool;
  switch (code) {
    case OpCode::kAdd:
      return real ? b.CreateFAdd(x, y) : (boolean ? b.CreateOr(x, y) : b.CreateAdd(x, y));
    case OpCode::kSub:
      return real ? b.CreateFSub(x, y) : b.CreateSub(x, y);
    case OpCode::kMul:
      return real ? b.CreateFMul(x, y) : (boolean ? b.CreateAnd(x, y) : b.CreateMul(x, y));
    case OpCode::kDiv:
      return real ? b.CreateFDiv(x, y) : b.CreateSDiv(x, y);
    case OpCode::kRem:
      return b.CreateSRem(x, y);
    case OpCode::kMaximum:
      if (boolean) return b.CreateOr(x, y);
      return real ? emit_maximum(b, x, y) : b.CreateSelect(b.CreateICmpSGT(x, y), x, y);
    case OpCode::kMinimum:
      if (boolean) return b.CreateAnd(x, y);
      return real ? b.CreateSelect(b.CreateFCmpULT(x, y), b.CreateSelect(b.CreateFCmpUNO(y, y), y, x), y)
                  : b.CreateSelect(b.CreateICmpSLT(x, y), x, y);
    case OpCode::kAnd:
      return b.CreateAnd(x, y);
    case OpCode::kOr:
      return b.CreateOr(x, y);
    default:
      internal_error("no machine code for {}", info(code).name);
  }
}

/// `number` rounded to f32, then to the 16-bit type.
double half_constant(double number, DType dtype) {
  llvm::APFloat value(static_cast<float>(number));
  bool inexact = false;
  value.convert(dtype == DType::kBF16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                llvm::APFloat::rmNearestTiesToEven, &inexact);
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return value.convertToDouble();
}

/// Whether the op's result on any numbers of a 16-bit type is a number of the type, so that it needs no rounding.
bool is_exact(OpCode code, DType from, DType to) {
  if (code == OpCode::kCast) return from == to || from == DType::kBool;
  return ir::traits_of(code).is_exact16;
}

}  // namespace

llvm::Type* register_type(IRBuilder<>& b, DType dtype) {
  if (is_half(dtype)) return b.getFloatTy();
  return dtype == DType::kBool ? b.getInt1Ty() : memory_type(b, dtype);
}

llvm::Type* memory_type(IRBuilder<>& b, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return b.getInt8Ty();
    case DType::kF16:
    case DType::kBF16:
      return b.getInt16Ty();
    case DType::kI32:
      return b.getInt32Ty();
    case DType::kI64:
      return b.getInt64Ty();
    case DType::kF32:
      return b.getFloatTy();
    case DType::kF64:
      return b.getDoubleTy();
    default:
      internal_error("no machine code for type {}", name_of(dtype));
  }
}

Value* emit_from_memory(IRBuilder<>& b, Value* loaded, DType dtype) {
  if (is_half(dtype)) return emit_from_half(b, loaded, dtype);
  return dtype == DType::kBool ? b.CreateICmpNE(loaded, zero(loaded)) : loaded;
}

Value* emit_to_memory(IRBuilder<>& b, Value* value, DType dtype) {
  if (is_half(dtype)) return emit_to_half(b, value, dtype);
  return dtype == DType::kBool ? b.CreateZExt(value, value->getType()->getWithNewType(b.getInt8Ty())) : value;
}

Value* emit_elementwise(IRBuilder<>& b, const ir::Op& op, DType from, DType to, std::span<Value* const> operands,
                        bool coarse) {
  if (op.code == OpCode::kSelect) return b.CreateSelect(operands[0], operands[1], operands[2]);
  Value* result = nullptr;
  if (op.code == OpCode::kCast)
    result = emit_cast(b, operands[0], from, to);
  else if (ir::traits_of(op.code).by_library && is_floating(to))
    result = library_function(b, op, operands);
  else if (operands.size() == 1)
    result = emit_unary(b, op.code, from, operands[0], coarse);
  else
    result = emit_binary(b, op.code, from, operands[0], operands[1]);
  if (!is_half(to) || is_exact(op.code, from, to)) return result;
  return emit_round_to_half(b, result, to, op.attr_or<bool>(ir::kExcessPrecision, false));
}

Value* emit_constant(IRBuilder<>& b, const ir::Op& op, DType dtype, int64_t lanes) {
  const ir::Attr& value = op.attrs.find("value")->second;
  double number = 0;
  if (const auto* d = std::get_if<double>(&value)) number = *d;
  if (const auto* i = std::get_if<int64_t>(&value)) number = static_cast<double>(*i);
  if (const auto* t = std::get_if<bool>(&value)) number = *t ? 1 : 0;
  llvm::Type* type = llvm::FixedVectorType::get(register_type(b, dtype), static_cast<unsigned>(lanes));
  // To a 16-bit type by way of f32, as the interpreter does.
  if (is_half(dtype)) return llvm::ConstantFP::get(type, half_constant(number, dtype));
  if (is_floating(dtype)) return llvm::ConstantFP::get(type, number);
  if (dtype == DType::kBool) return llvm::ConstantInt::get(type, number != 0 ? 1 : 0);
  const auto* exact = std::get_if<int64_t>(&value);
  return llvm::ConstantInt::getSigned(type, exact ? *exact : static_cast<int64_t>(number));
}

Value* emit_maximum(IRBuilder<>& b, Value* x, Value* y) {
  // a > b, or unordered: then a if it is the NaN, else b.
  return b.CreateSelect(b.CreateFCmpUGT(x, y), b.CreateSelect(b.CreateFCmpUNO(y, y), y, x), y);
}

}  // namespace weft::codegen

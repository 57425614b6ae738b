#include "codegen/pointwise.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "codegen/half.h"
#include "codegen/isa.h"
#include "codegen/library_math.h"
#include "codegen/vector_math.h"

namespace weft::codegen {
namespace {

using ir::OpCode;
using llvm::CmpInst;
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

/// Calls a function of runtime/kernels/scalar_functions.def for each element.
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

/// Whether a lane is so large that its sine needs more digits of pi than the inline code has.
Value* is_beyond(IRBuilder<>& b, Value* x) {
  Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  return b.CreateOrReduce(b.CreateFCmpOGT(size, llvm::ConstantFP::get(x->getType(), kMostTurned)));
}

/// Halves a vector until each part fits one register in f64.
Value* inline_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  const auto lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(operands[0]->getType())->getNumElements());
  const int wide_lanes = vector_isa(b).avx512 ? 8 : 4;
  if (lanes <= wide_lanes || lanes % 2 != 0 || is_narrow(code)) return emit_library_function(b, code, operands);
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

/// The operands of an op whose machine code is emitted: vectors of one type, `x` alone for a unary op.
struct Site {
  IRBuilder<>& b;
  DType from;  ///< the operands' type
  Value *x, *y;
  bool coarse;  ///< as in vector_math.h
  bool is_real = is_float(x);

  Value* intrinsic(llvm::Intrinsic::ID function) const { return b.CreateUnaryIntrinsic(function, x); }
};

/// The machine code of an op. Each op that begins with kPointwise in ops.def has a specialisation: kEmitters doesn't
/// compile without.
template <OpCode>
Value* emit(const Site& site) = delete;

#define WEFT_EMIT(Name, expression)                                       \
  template <>                                                             \
  Value* emit<OpCode::k##Name>(const Site& site) {                        \
    [[maybe_unused]] const auto& [b, from, x, y, coarse, is_real] = site; \
    return expression;                                                    \
  }

WEFT_EMIT(Copy, x)
WEFT_EMIT(StopGradient, x)
WEFT_EMIT(Neg, is_real ? b.CreateFNeg(x) : b.CreateNeg(x))
WEFT_EMIT(Sign, emit_sign(b, x, from))
WEFT_EMIT(Exp, emit_exp(b, x))
WEFT_EMIT(Log, emit_log(b, x))
WEFT_EMIT(Expm1, emit_expm1(b, x))
WEFT_EMIT(Tanh, emit_tanh(b, x, coarse))
WEFT_EMIT(Sigmoid, emit_sigmoid(b, x, coarse))
WEFT_EMIT(Sqrt, site.intrinsic(llvm::Intrinsic::sqrt))
WEFT_EMIT(Rsqrt, b.CreateFDiv(one(x), site.intrinsic(llvm::Intrinsic::sqrt)))
WEFT_EMIT(Floor, site.intrinsic(llvm::Intrinsic::floor))
WEFT_EMIT(Ceil, site.intrinsic(llvm::Intrinsic::ceil))
WEFT_EMIT(Trunc, site.intrinsic(llvm::Intrinsic::trunc))
WEFT_EMIT(Round, site.intrinsic(llvm::Intrinsic::roundeven))
WEFT_EMIT(Relu, b.CreateSelect(is_real ? b.CreateFCmpOLE(x, zero(x)) : b.CreateICmpSLE(x, zero(x)), zero(x), x))
WEFT_EMIT(Not, b.CreateNot(x))
WEFT_EMIT(And, b.CreateAnd(x, y))
WEFT_EMIT(Or, b.CreateOr(x, y))
WEFT_EMIT(Div, is_real ? b.CreateFDiv(x, y) : b.CreateSDiv(x, y))
WEFT_EMIT(Rem, b.CreateSRem(x, y))  // of integers

WEFT_EMIT(Eq, is_real ? b.CreateFCmpOEQ(x, y) : b.CreateICmpEQ(x, y))
WEFT_EMIT(Ne, is_real ? b.CreateFCmpUNE(x, y) : b.CreateICmpNE(x, y))

template <>
Value* emit<OpCode::kAbs>(const Site& site) {
  if (site.is_real) return site.intrinsic(llvm::Intrinsic::fabs);
  if (site.from == DType::kBool) return site.x;
  return site.b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, site.x, site.b.getFalse());
}

/// false is less than true.
Value* ordered(const Site& site, CmpInst::Predicate real, CmpInst::Predicate of_bools, CmpInst::Predicate of_integers) {
  if (site.is_real) return site.b.CreateFCmp(real, site.x, site.y);
  return site.b.CreateICmp(site.from == DType::kBool ? of_bools : of_integers, site.x, site.y);
}

WEFT_EMIT(Lt, ordered(site, CmpInst::FCMP_OLT, CmpInst::ICMP_ULT, CmpInst::ICMP_SLT))
WEFT_EMIT(Le, ordered(site, CmpInst::FCMP_OLE, CmpInst::ICMP_ULE, CmpInst::ICMP_SLE))

Site exchanged(const Site& site) { return {site.b, site.from, site.y, site.x, site.coarse}; }

WEFT_EMIT(Gt, emit<OpCode::kLt>(exchanged(site)))
WEFT_EMIT(Ge, emit<OpCode::kLe>(exchanged(site)))

template <>
Value* emit<OpCode::kAdd>(const Site& site) {
  if (site.is_real) return site.b.CreateFAdd(site.x, site.y);
  return site.from == DType::kBool ? site.b.CreateOr(site.x, site.y) : site.b.CreateAdd(site.x, site.y);
}

WEFT_EMIT(Sub, is_real ? b.CreateFSub(x, y) : b.CreateSub(x, y))

template <>
Value* emit<OpCode::kMul>(const Site& site) {
  if (site.is_real) return site.b.CreateFMul(site.x, site.y);
  return site.from == DType::kBool ? site.b.CreateAnd(site.x, site.y) : site.b.CreateMul(site.x, site.y);
}

template <>
Value* emit<OpCode::kMaximum>(const Site& site) {
  const auto& [b, from, x, y, coarse, is_real] = site;
  if (from == DType::kBool) return b.CreateOr(x, y);
  return is_real ? emit_maximum(b, x, y) : b.CreateSelect(b.CreateICmpSGT(x, y), x, y);
}

template <>
Value* emit<OpCode::kMinimum>(const Site& site) {
  const auto& [b, from, x, y, coarse, is_real] = site;
  if (from == DType::kBool) return b.CreateAnd(x, y);
  if (!is_real) return b.CreateSelect(b.CreateICmpSLT(x, y), x, y);
  return b.CreateSelect(b.CreateFCmpULT(x, y), b.CreateSelect(b.CreateFCmpUNO(y, y), y, x), y);
}

#undef WEFT_EMIT

using Emitter = Value* (*)(const Site&);

/// emit() of a pointwise op; null for others. Casts and selects are emitted apart, since their operands differ in type.
template <OpCode code, ir::OpClass op_class, ir::OpTraits traits>
constexpr Emitter emitter_of() {
  constexpr bool kIsApart = code == OpCode::kCast || code == OpCode::kSelect;
  constexpr bool kIsPointwise = op_class == ir::OpClass::kElementwise && !traits.by_library;
  if constexpr (code == OpCode::kRem || (kIsPointwise && !kIsApart))
    return &emit<code>;
  else
    return nullptr;
}

constexpr auto kEmitters = [] {
  // The words of ops.def.
  using namespace ir;          // NOLINT(google-build-using-namespace)
  using namespace ir::traits;  // NOLINT(google-build-using-namespace)
  return std::to_array<Emitter>({
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, interpreter, traits) \
  emitter_of<OpCode::k##Enum, OpClass::k##Class, traits>(),
#include "ir/ops.def"
  });
}();

constexpr std::string_view kLibraryFunctions[] = {
#define WEFT_SCALAR_FUNCTION(name, ...) #name,
#include "runtime/kernels/scalar_functions.def"
};

constexpr bool is_in_library(std::string_view op) {
  return std::ranges::find(kLibraryFunctions, op) != std::end(kLibraryFunctions);
}

// The words of ops.def.
namespace library_ops {
using namespace ir;          // NOLINT(google-build-using-namespace)
using namespace ir::traits;  // NOLINT(google-build-using-namespace)
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, interpreter, traits) \
  static_assert(!OpTraits(traits).by_library || is_in_library(text),                \
                text " begins with kLibrary and has no row in runtime/kernels/scalar_functions.def");
#include "ir/ops.def"
}  // namespace library_ops

/// `number` rounded to f32, then to the 16-bit type.
double half_constant(double number, DType dtype) {
  llvm::APFloat value(static_cast<float>(number));
  bool inexact = false;
  value.convert(dtype == DType::kBF16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                llvm::APFloat::rmNearestTiesToEven, &inexact);
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return value.convertToDouble();
}

/// Whether the op maps numbers of a 16-bit type to numbers of that type, so that its result needs no rounding.
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

namespace {

Emitter pointwise(const ir::Op& op) {
  const Emitter found = kEmitters[static_cast<size_t>(op.code)];
  internal_check(found != nullptr, "no machine code for {}", info(op.code).name);
  return found;
}

}  // namespace

Value* emit_elementwise(IRBuilder<>& b, const ir::Op& op, DType from, DType to, std::span<Value* const> operands,
                        bool coarse) {
  if (op.code == OpCode::kSelect) return b.CreateSelect(operands[0], operands[1], operands[2]);
  Value* result = nullptr;
  if (op.code == OpCode::kCast)
    result = emit_cast(b, operands[0], from, to);
  else if (ir::traits_of(op.code).by_library && is_floating(to))
    result = library_function(b, op, operands);
  else
    result = pointwise(op)({b, from, operands[0], operands.size() > 1 ? operands[1] : nullptr, coarse});
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
  // Unordered or a > b: a if it is the NaN or the larger, else b.
  return b.CreateSelect(b.CreateFCmpUGT(x, y), b.CreateSelect(b.CreateFCmpUNO(y, y), y, x), y);
}

}  // namespace weft::codegen

#include "passes/code_size.h"

namespace weft::passes {
namespace {

using ir::OpCode;

constexpr int64_t kLibraryCall = 8;     // operands go through memory
constexpr int64_t kDivideByLanes = 80;  // there is no vector instruction
constexpr int64_t kRoundToHalf = 12;
constexpr int64_t kProductCall = 32;
constexpr int64_t kReduction = 24;  // with the tree of the last vector

int64_t size_of_result(OpCode code, DType dtype) {
  const bool real = is_floating(dtype), wide = dtype == DType::kF64;
  switch (code) {
    case OpCode::kTanh:
      return wide ? 56 : 41;
    case OpCode::kSigmoid:
      return wide ? 46 : 40;
    case OpCode::kExp:
      return wide ? 33 : 27;
    case OpCode::kExpm1:
      return wide ? 92 : 71;
    case OpCode::kLog:
    case OpCode::kLog2:
    case OpCode::kLog10:
    case OpCode::kLog1p:
    case OpCode::kSin:
    case OpCode::kCos:
    case OpCode::kErf:
    case OpCode::kErfc:
    case OpCode::kPow:
    case OpCode::kAtan2:
      return kLibraryCall;
    case OpCode::kRem:
      return real ? kLibraryCall : kDivideByLanes;
    case OpCode::kDiv:
      return real ? 1 : kDivideByLanes;
    case OpCode::kCast:
      return real ? 2 : 8;  // saturated, and NaN apart
    case OpCode::kSign:
      return 6;
    case OpCode::kMaximum:
    case OpCode::kMinimum:
      return 4;
    case OpCode::kMatmulPacked:
      return kProductCall;
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return kReduction;
    case OpCode::kConcat:
      return 0;
    default:
      return 1;
  }
}

}  // namespace

int64_t code_size(const ir::Program& program, const ir::Op& op) {
  const DType dtype = program.type(op.results[0]).dtype;
  const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
  return size_of_result(op.code, dtype) + (half ? kRoundToHalf : 0);
}

}  // namespace weft::passes

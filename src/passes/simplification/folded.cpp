#include "passes/simplification/folded.h"

#include <cmath>

namespace weft::passes {

using ir::OpCode;

std::optional<double> folded(OpCode code, double a, double b) {
  switch (code) {
    case OpCode::kNeg:
      return -a;
    case OpCode::kAbs:
      return std::fabs(a);
    case OpCode::kAdd:
      return a + b;
    case OpCode::kSub:
      return a - b;
    case OpCode::kMul:
      return a * b;
    case OpCode::kDiv:
      return a / b;
    case OpCode::kSqrt:
      return std::sqrt(a);
    default:
      return std::nullopt;
  }
}

std::optional<bool> compared(OpCode code, double a, double b) {
  switch (code) {
    case OpCode::kEq:
      return a == b;
    case OpCode::kNe:
      return a != b;
    case OpCode::kLt:
      return a < b;
    case OpCode::kLe:
      return a <= b;
    case OpCode::kGt:
      return a > b;
    case OpCode::kGe:
      return a >= b;
    default:
      return std::nullopt;
  }
}

}  // namespace weft::passes

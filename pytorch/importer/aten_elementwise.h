#pragma once

#include "importer/aten_ops.h"

/// Elementwise ATen ops that take more than one op of the IR, and ops whose values follow from indices (arange, eye,
/// tril).
namespace weft::importer {

/// The dtype to which PyTorch promotes arguments 0 and 1. User's error if one of them is a number that the region can't
/// know.
DType promoted_dtype(const AtenCall& call);

template <ir::OpCode Code>
ir::ValueId compare(const AtenCall& call) {
  DType dtype = promoted_dtype(call);
  return call.binary(Code, call.operand(0, dtype), call.operand(1, dtype));
}

/// floor, ceil, trunc and round; integers stay unchanged.
template <ir::OpCode Code>
ir::ValueId rounded(const AtenCall& call) {
  return is_floating(call.result.dtype) ? call.unary(Code, call.operand(0)) : call.operand(0);
}

ir::ValueId power(const AtenCall& call);
ir::ValueId power_of_tensors(const AtenCall& call);
ir::ValueId exp2(const AtenCall& call);
ir::ValueId square(const AtenCall& call);
/// A value at a bound is inside, so the gradient passes there, as in PyTorch.
ir::ValueId clamp(const AtenCall& call);
ir::ValueId clamp_min(const AtenCall& call);
ir::ValueId clamp_max(const AtenCall& call);
ir::ValueId fmax(const AtenCall& call);
ir::ValueId fmin(const AtenCall& call);
ir::ValueId exclusive_or(const AtenCall& call);
ir::ValueId is_nan(const AtenCall& call);
ir::ValueId is_inf(const AtenCall& call);

ir::ValueId remainder(const AtenCall& call);
ir::ValueId floor_divide(const AtenCall& call);
/// Argument 2 is the rounding mode: None, "floor" or "trunc".
ir::ValueId divide_rounded(const AtenCall& call);

ir::ValueId tan(const AtenCall& call);
ir::ValueId asin(const AtenCall& call);
ir::ValueId acos(const AtenCall& call);
ir::ValueId atan(const AtenCall& call);
ir::ValueId sinh(const AtenCall& call);
ir::ValueId cosh(const AtenCall& call);
ir::ValueId asinh(const AtenCall& call);
ir::ValueId acosh(const AtenCall& call);
ir::ValueId atanh(const AtenCall& call);

ir::ValueId arange(const AtenCall& call);
ir::ValueId prims_iota(const AtenCall& call);
ir::ValueId eye(const AtenCall& call);

/// column `Keeps` row + argument 1: of tril kLe, of triu kGe.
ir::ValueId triangle(const AtenCall& call, ir::OpCode keeps);
template <ir::OpCode Keeps>
ir::ValueId triangle(const AtenCall& call) {
  return triangle(call, Keeps);
}

}  // namespace weft::importer

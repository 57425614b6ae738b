// The lowering of each op of the IR. An op without a row is the user's error, which names it.
#include <array>

#include "stablehlo/lowerings.h"
#include "stablehlo/write.h"

namespace weft::stablehlo {
namespace {

using ir::OpCode;

struct OpRow {
  OpCode code;
  std::string_view becomes;  ///< for `direct` the op's name in StableHLO, else words for readers
  Lowering lowering;
};

constexpr OpRow kOpRows[] = {
    {OpCode::kConstant, "constant", lowerings::constant},
    {OpCode::kIota, "iota", lowerings::iota},
    {OpCode::kSize, "constant", lowerings::size},
    // elementwise
    {OpCode::kCopy, "nothing", lowerings::copy},
    {OpCode::kStopGradient, "nothing", lowerings::copy},
    {OpCode::kNeg, "negate", lowerings::direct},
    {OpCode::kAbs, "abs", lowerings::abs},
    {OpCode::kSign, "compare, subtract", lowerings::sign},
    {OpCode::kExp, "exponential", lowerings::direct},
    {OpCode::kExpm1, "exponential_minus_one", lowerings::direct},
    {OpCode::kLog, "log", lowerings::direct},
    {OpCode::kLog2, "log, multiply", lowerings::log2},
    {OpCode::kLog10, "log, multiply", lowerings::log10},
    {OpCode::kLog1p, "log_plus_one", lowerings::direct},
    {OpCode::kSqrt, "sqrt", lowerings::direct},
    {OpCode::kRsqrt, "rsqrt", lowerings::direct},
    {OpCode::kTanh, "tanh", lowerings::direct},
    {OpCode::kSigmoid, "logistic", lowerings::direct},
    {OpCode::kRelu, "compare, select", lowerings::relu},
    {OpCode::kSin, "sine", lowerings::direct},
    {OpCode::kCos, "cosine", lowerings::direct},
    {OpCode::kErf, "chlo.erf", lowerings::erf},
    {OpCode::kErfc, "chlo.erfc", lowerings::erfc},
    {OpCode::kFloor, "floor", lowerings::direct},
    {OpCode::kCeil, "ceil", lowerings::direct},
    {OpCode::kTrunc, "ceil, floor, select", lowerings::trunc},
    {OpCode::kRound, "round_nearest_even", lowerings::direct},
    {OpCode::kNot, "not", lowerings::direct},
    {OpCode::kCast, "convert, select", lowerings::cast},
    {OpCode::kAdd, "add", lowerings::direct},
    {OpCode::kSub, "subtract", lowerings::direct},
    {OpCode::kMul, "multiply", lowerings::direct},
    {OpCode::kDiv, "divide", lowerings::direct},
    {OpCode::kRem, "remainder", lowerings::direct},
    {OpCode::kPow, "power", lowerings::direct},
    {OpCode::kAtan2, "atan2", lowerings::direct},
    {OpCode::kHypot, "multiply, sqrt, select", lowerings::hypot},
    {OpCode::kLogaddexp, "maximum, exponential, log_plus_one", lowerings::logaddexp},
    {OpCode::kMaximum, "maximum", lowerings::direct},
    {OpCode::kMinimum, "minimum", lowerings::direct},
    {OpCode::kEq, "compare", lowerings::compare},
    {OpCode::kNe, "compare", lowerings::compare},
    {OpCode::kLt, "compare", lowerings::compare},
    {OpCode::kLe, "compare", lowerings::compare},
    {OpCode::kGt, "compare", lowerings::compare},
    {OpCode::kGe, "compare", lowerings::compare},
    {OpCode::kAnd, "and", lowerings::direct},
    {OpCode::kOr, "or", lowerings::direct},
    {OpCode::kSelect, "select", lowerings::select},
    // movement
    {OpCode::kBroadcast, "broadcast_in_dim", lowerings::broadcast},
    {OpCode::kReshape, "reshape", lowerings::reshape},
    {OpCode::kTranspose, "transpose", lowerings::transpose},
    {OpCode::kSlice, "slice", lowerings::slice},
    {OpCode::kPad, "pad", lowerings::pad},
    {OpCode::kConcat, "concatenate", lowerings::concat},
    {OpCode::kReverse, "reverse", lowerings::reverse},
    {OpCode::kGather, "gather", lowerings::gather},
    {OpCode::kScatterAdd, "scatter", lowerings::scatter_add},
    {OpCode::kScatter, "scatter, gather, select", lowerings::scatter},
    {OpCode::kDynamicSlice, "dynamic_slice", lowerings::dynamic_slice},
    {OpCode::kDynamicUpdate, "dynamic_update_slice", lowerings::dynamic_update},
    {OpCode::kPack, "pad, reshape, transpose", lowerings::pack},
    // reductions and products
    {OpCode::kReduceSum, "reduce", lowerings::reduce_sum},
    {OpCode::kReduceMax, "reduce", lowerings::reduce_max},
    {OpCode::kMatmul, "dot_general", lowerings::matmul},
    {OpCode::kOuter, "dot_general", lowerings::outer},
    {OpCode::kBatchMatmul, "dot_general", lowerings::batch_matmul},
    {OpCode::kMatmulRows, "convert, dot_general", lowerings::matmul_rows},
    {OpCode::kMatmulPacked, "reshape, transpose, dot_general", lowerings::matmul_packed},
    // regions
    {OpCode::kScan, "while", lowerings::scan},
    {OpCode::kCond, "if", lowerings::cond},
    {OpCode::kWhile, "while", lowerings::while_loop},
    {OpCode::kExtern, "convolution, sort, cholesky, triangular_solve, or an error", lowerings::external},
    {OpCode::kCustomVjp, "nothing", lowerings::custom_vjp},
};

using Table = std::array<const OpRow*, ir::kOpCount>;

/// The rows by op.
constexpr Table kTable = [] {
  Table table{};
  for (const OpRow& row : kOpRows) table[static_cast<size_t>(row.code)] = &row;
  return table;
}();

}  // namespace

Lowering lowering_of(OpCode code) {
  const OpRow* row = kTable[static_cast<size_t>(code)];
  return row == nullptr ? nullptr : row->lowering;
}

std::string_view lowered_as(OpCode code) {
  const OpRow* row = kTable[static_cast<size_t>(code)];
  return row == nullptr ? std::string_view() : row->becomes;
}

}  // namespace weft::stablehlo

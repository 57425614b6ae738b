#include "passes/layout/code_size.h"

namespace weft::passes {
namespace {

using ir::OpCode;

constexpr int64_t kRoundToHalf = 12;

int64_t size_of_result(OpCode code, DType dtype) {
  const ir::OpTraits& traits = ir::traits_of(code);
  if (!is_floating(dtype)) return traits.instructions_int;
  return dtype == DType::kF64 ? traits.instructions_f64 : traits.instructions;
}

}  // namespace

int64_t code_size(const ir::Program& program, const ir::Op& op) {
  const DType dtype = program.type(op.results[0]).dtype;
  const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
  return size_of_result(op.code, dtype) + (half ? kRoundToHalf : 0);
}

}  // namespace weft::passes

#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>

#include "planning/schedule.h"

namespace weft::codegen {

/// Emits a function (runtime::StageFunction, with the stage's symbol as its name) for each stage that is machine code.
/// Appends the sizes that they read to schedule.plan.dims, in a fixed order. The functions call: the micro-kernels
/// `weft_product_<dtype>_<vectors>` and, for panels in pairs, `weft_product_<dtype of the left
/// operand>_pairs_<vectors>`, for panels packed on the way `weft_on_the_way_<dtype of the weights>`, for 8-bit weights
/// `weft_byte_rows_<dtype of the left operand>`, `weft_barrier`, `weft_delay`, and `weft_<op>_<dtype>` of
/// runtime/scalar_math.h.
std::unique_ptr<llvm::Module> generate(planning::Schedule& schedule, llvm::LLVMContext& context);

}  // namespace weft::codegen

#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <vector>

#include "planning/schedule.h"

namespace weft::codegen {

/// A module in a context of its own, so that threads can compile several at a time.
struct StageModule {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

/// Emits a function (runtime::StageFunction, with the stage's symbol as its name) for each stage that is machine code,
/// into modules of one stage or several; `together`: into one at most. What is in which depends on the program alone.
/// Appends the sizes that they read to schedule.plan.dims, in a fixed order. The functions call `weft_panels`
/// (runtime/panels.h), and by it the micro-kernels `weft_product_<dtype>_<vectors>` and, for panels in pairs,
/// `weft_product_<dtype of the left operand>_pairs_<vectors>`, where f16 weights may be read as they lie
/// `weft_product_f32_f16_<vectors>`, for panels packed on the way `weft_on_the_way_<dtype of the weights>`, for 8-bit
/// weights `weft_byte_rows_<dtype of the left operand>`; `weft_barrier`, `weft_delay`, and `weft_<op>_<dtype>` of
/// runtime/scalar_math.h.
std::vector<StageModule> generate(planning::Schedule& schedule, bool together);

}  // namespace weft::codegen

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

/// Emits a function for each stage that is machine code (runtime::StageFunction, named by the stage's symbol). A module
/// holds one stage or several; with `together` there is at most one module. The program alone decides which stages
/// share a module. Appends the sizes that the functions read to schedule.plan.dims, in a fixed order.
///
/// The functions call `weft_panels` (runtime/kernels/panels.h), `weft_barrier`, `weft_delay`, and `weft_<op>_<dtype>`
/// of runtime/kernels/scalar_math.h. `weft_panels` calls the micro-kernels: `weft_product_<dtype>_<vectors>`; for
/// panels in pairs `weft_product_<dtype of the left operand>_pairs_<vectors>`; for f16 weights that are read unpacked
/// `weft_product_f32_f16_<vectors>`; for panels packed on the way `weft_on_the_way_<dtype of the weights>`; for 8-bit
/// weights `weft_byte_rows_<dtype of the left operand>`.
std::vector<StageModule> generate(planning::Schedule& schedule, bool together);

}  // namespace weft::codegen

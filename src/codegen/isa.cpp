#include "codegen/isa.h"

#include <llvm/IR/Constants.h>

#include "base/error.h"

namespace weft::codegen {
namespace {

constexpr const char* kFlag = "weft.isa";

}  // namespace

VectorIsa vector_isa_of(runtime::Isa isa) {
  const runtime::Isa vectors = runtime::vector_isa(isa);
  return {.avx512 = vectors == runtime::Isa::kAvx512,
          .f16c = vectors != runtime::Isa::kGeneric,
          .bf16_rounding = vectors == runtime::Isa::kAvx512 && runtime::has_bf16_instructions(),
          .fused = vectors != runtime::Isa::kGeneric};
}

void set_vector_isa(llvm::Module& module, const VectorIsa& isa) {
  const uint32_t bits =
      (isa.avx512 ? 1u : 0) | (isa.f16c ? 2u : 0) | (isa.bf16_rounding ? 4u : 0) | (isa.fused ? 8u : 0);
  module.addModuleFlag(llvm::Module::Error, kFlag, bits);
}

VectorIsa vector_isa(const llvm::IRBuilder<>& b) {
  const llvm::Module& module = *b.GetInsertBlock()->getModule();
  const auto* flag = llvm::mdconst::dyn_extract_or_null<llvm::ConstantInt>(module.getModuleFlag(kFlag));
  internal_check(flag != nullptr, "nobody has said which vector unit the module is for");
  const uint64_t bits = flag->getZExtValue();
  return {
      .avx512 = (bits & 1) != 0, .f16c = (bits & 2) != 0, .bf16_rounding = (bits & 4) != 0, .fused = (bits & 8) != 0};
}

}  // namespace weft::codegen

#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "runtime/kernels/kernels.h"

namespace weft::codegen {

/// The features of a module's vector unit that emission depends on. They belong to the module, which may be for another
/// machine than this one (src/packages).
struct VectorIsa {
  bool avx512 = false;         ///< registers of 512 bits that scale by powers of two and estimate reciprocals
  bool f16c = false;           ///< instructions that convert f16
  bool bf16_rounding = false;  ///< one instruction that rounds 512 bits of f32 to bf16
  bool fused = false;          ///< multiply-adds of f64 that round once

  bool operator==(const VectorIsa&) const = default;
};

/// The kernels' ISA on this machine.
VectorIsa vector_isa_of(runtime::Isa isa);

void set_vector_isa(llvm::Module& module, const VectorIsa& isa);

/// The VectorIsa of the module that the builder writes to; internal error if none was set.
VectorIsa vector_isa(const llvm::IRBuilder<>& b);

}  // namespace weft::codegen

#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <span>
#include <string_view>

#include "packages/math/rare_lanes.h"

namespace weft::packages {

// Functions that are written once in an object and called wherever they are needed: where flash is small and a vector
// is one element, a call costs less than copies of the code.

/// Writes the body of a function; the builder stands in its first block and may leave it. The result is returned.
using FunctionBody = std::function<llvm::Value*(llvm::IRBuilder<>&, Values arguments)>;

/// The module's function of that name, with local linkage; written now if there is none yet. It reads nothing but its
/// arguments and constants.
llvm::Function* shared_function(llvm::IRBuilder<>& b, std::string_view name, llvm::Type* result,
                                std::span<llvm::Type* const> arguments, const FunctionBody& body);

/// A number for each lane of the operands, vectors or single numbers alike: computed one by one.
llvm::Value* for_lanes(llvm::IRBuilder<>& b, std::span<llvm::Value* const> operands,
                       const std::function<llvm::Value*(Values)>& compute);

/// A shared function of f32s, called for each lane.
llvm::Value* call_for_lanes(llvm::IRBuilder<>& b, std::string_view name, std::span<llvm::Value* const> operands,
                            const FunctionBody& body);

/// What one of two computations results in, chosen by a branch. Either may add blocks; both have as many results.
Values either(llvm::IRBuilder<>& b, llvm::Value* condition, const std::function<Values()>& yes,
              const std::function<Values()>& no);

}  // namespace weft::packages

#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace weft::packages {

using Values = std::vector<llvm::Value*>;

/// A part of a function's domain that the code for vectors doesn't cover.
struct RareCase {
  std::string_view name;  ///< of the function in the object; one for each case
  /// Whether operands are in this part of the domain, for vectors and for single elements.
  std::function<llvm::Value*(llvm::IRBuilder<>&, std::span<llvm::Value* const> operands)> contains;
  /// The results for single operands. May add blocks; the builder stands in the last one.
  std::function<Values(llvm::IRBuilder<>&, std::span<llvm::Value* const> operands)> compute;
};

/// `results` of vectors of 64-bit elements, with the lanes of the rare case computed one by one. All lanes share one
/// branch, and without such a lane nothing more is done. A lane's result doesn't depend on other lanes. The loop over
/// lanes is a function of the module with local linkage, since several steps and vectors use it.
Values with_rare_lanes(llvm::IRBuilder<>& b, const RareCase& rare, std::span<llvm::Value* const> operands,
                       Values results);

}  // namespace weft::packages

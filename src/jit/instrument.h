#pragma once

#include <llvm/IR/Module.h>

#include <span>
#include <string>

namespace weft::jit {

/// Before every access to memory that is not the function's own stack, a call that announces it to ThreadSanitizer, and
/// calls that tell it where a function begins and ends, so that reports name the stage. LLVM's own pass leaves out
/// masked accesses and vectors wider than 16 bytes, which are nearly all that stages do. For builds with
/// kThreadSanitizer, where the calls resolve. `program` is what reports call the program.
///
///   %v = masked load <16 x float>, %p, %mask   ->   call @weft_announce_read(%p, 4 * popcount(%mask)), then the load
void announce_accesses(llvm::Module& module, const std::string& program);

struct AnnounceSymbol {
  const char* name;
  const void* address;
};
/// What the calls resolve to; empty in other builds.
std::span<const AnnounceSymbol> announce_symbols();

}  // namespace weft::jit

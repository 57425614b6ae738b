#pragma once

#include <llvm/IR/Module.h>

#include <span>
#include <string>

namespace weft::jit {

/// Instruments a module for ThreadSanitizer: a call before every access to memory other than the function's own stack,
/// and calls where a function begins and ends, so that reports name the stage. LLVM's own pass leaves out masked
/// accesses and vectors wider than 16 bytes, of which stages consist. For builds with kThreadSanitizer, where the calls
/// resolve. `program` is the program's name in reports.
///
///   %v = masked load <16 x float>, %p, %mask   ->   call @weft_announce_read(%p, 4 * popcount(%mask)), then the load
void announce_accesses(llvm::Module& module, const std::string& program);

struct AnnounceSymbol {
  const char* name;
  const void* address;
};
/// The functions that the calls resolve to; empty in other builds.
std::span<const AnnounceSymbol> announce_symbols();

}  // namespace weft::jit

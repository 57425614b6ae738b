#pragma once

#include <atomic>
#include <memory>

#include "engine/engine.h"

namespace weft::engine {

struct NativeResult;

/// A program that a thread of its own compiles, for a call to come. Counted in stats() as the first call takes it: what
/// was never taken was not made ready, and the seconds are those that the call waited.
class CompilationAhead {
 public:
  /// Begins. Null where no thread can be had: the system gives none, a child of fork has but one, the process ends.
  static std::shared_ptr<CompilationAhead> begin(ir::Program program);

  /// Waits until it is done. Null if it failed, for the caller to compile the program and get the error itself, and in
  /// a child of a fork that came in between.
  std::shared_ptr<const Executable> take();

 private:
  void compile(ir::Program program);

  std::atomic<bool> is_done_{false};
  std::atomic<bool> is_counted_{false};
  std::shared_ptr<const NativeResult> result_;  ///< read once it is done
};

/// Waits for those that have begun; from here on none begins. To be called before the process ends, which destroys the
/// objects that LLVM has.
void end_compilations_ahead();

}  // namespace weft::engine

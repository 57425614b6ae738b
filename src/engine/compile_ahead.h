#pragma once

#include <atomic>
#include <memory>

#include "engine/engine.h"

namespace weft::engine {

struct NativeResult;

/// Compiles a program on a thread of its own, for a later call. stats() counts the program when the first call takes
/// it, with the seconds that this call waited. A program that no call takes is not counted.
class CompilationAhead {
 public:
  /// Begins to compile. Null where no thread can be had: the system gives none, a child of fork has but one, the
  /// process ends.
  static std::shared_ptr<CompilationAhead> begin(ir::Program program);

  /// Waits until the program is compiled. Null if that failed: the caller then compiles the program and gets the error
  /// itself. Null too in a child of a fork that came in between.
  std::shared_ptr<const Executable> take();

 private:
  void compile(ir::Program program);

  std::atomic<bool> is_done_{false};
  std::atomic<bool> is_counted_{false};
  std::shared_ptr<const NativeResult> result_;  ///< read once it is done
};

/// Waits for the compilations that have begun; from here on none begins. Must be called before the process ends, which
/// destroys LLVM's objects.
void end_compilations_ahead();

}  // namespace weft::engine

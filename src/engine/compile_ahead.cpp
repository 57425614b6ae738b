#include "engine/compile_ahead.h"

#include <chrono>
#include <utility>

#include "base/fork.h"
#include "engine/native.h"
#include "jit/background.h"

namespace weft::engine {
std::shared_ptr<CompilationAhead> CompilationAhead::begin(ir::Program program) {
  auto ahead = std::make_shared<CompilationAhead>();
  auto given = std::make_shared<ir::Program>(std::move(program));
  return jit::in_background([ahead, given] { ahead->compile(std::move(*given)); }) ? ahead : nullptr;
}

void CompilationAhead::compile(ir::Program program) {
  try {
    result_ = std::make_shared<const NativeResult>(native(std::move(program)));
  } catch (const std::exception&) {
    // Then take() returns null.
  }
  is_done_.store(true, std::memory_order_release);
  is_done_.notify_all();
}

std::shared_ptr<const Executable> CompilationAhead::take() {
  const auto start = std::chrono::steady_clock::now();
  if (!is_done_.load(std::memory_order_acquire)) {
    if (in_forked_child()) return nullptr;
    is_done_.wait(false, std::memory_order_acquire);
  }
  if (!result_) return nullptr;
  if (!is_counted_.exchange(true, std::memory_order_relaxed)) count(*result_, start);
  return result_->executable;
}

void end_compilations_ahead() { jit::end_background_work(); }

}  // namespace weft::engine

#pragma once

#include <functional>

namespace weft::jit {

/// Does the work on a thread of its own, on another core if there is one. False, and nothing is done, where no thread
/// can be had: the system gives none, a child of fork has but one, the process ends. `work` throws nothing.
bool in_background(std::function<void()> work);

/// Waits for all such work; from here on none begins. Must be called before the process ends, which destroys LLVM's
/// objects.
void end_background_work();

}  // namespace weft::jit

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace weft {

/// Fork safety.
///
/// A child has one thread, the one that forked. A lock that another thread held at that moment is held in the child for
/// ever, and what it guards may be half changed. So every lock that a child may need is registered here: a fork takes
/// all of them first and gives them back in the parent and in the child. A child can therefore compile, run and free
/// programs, on its one thread (in_forked_child), and so can its own children.
///
/// 1. A thread that holds a registered lock may take another only of a later rank. A fork takes them by rank, so that
///    it and that thread cannot wait for each other. Nothing is called under such a lock that waits for other threads.
/// 2. Registered locks are made while the library is loaded, and never destroyed.
/// 3. A function-local static with a dynamic initialiser has a lock of the compiler's, which cannot be registered. Such
///    objects are made at load instead, at namespace scope; tests/unit/base/lazy_statics.sh finds those that are not.
/// 4. std::atomic<std::shared_ptr> has a lock inside, and is not used.
///
/// A lock that belongs to one call (a Run's) is not registered, since a child begins calls of its own. Nor is a lock of
/// a team, since a child does not use teams.
enum class LockRank {
  kLookup,    ///< programs by text, derivatives, warnings given (pytorch/operator, pytorch/override)
  kEngine,    ///< statistics
  kCompiler,  ///< LLVM at work on modules, in any number of threads (ForkGate)
  kLinker,    ///< the session that machine code is linked, looked up and freed in
  kMachines,  ///< targets and what LLVM knows of them, kept from module to module
  kLayouts,   ///< layouts of buffers, kept from call to call
  kArena,     ///< memory, kept from call to call
};

/// Has every later fork hold `mutex`; returns it.
std::mutex& hold_across_fork(std::mutex& mutex, LockRank rank);

/// A gate in front of a library whose locks no fork can hold, in which any number of threads may be at work. A fork
/// waits until the threads inside have left, and keeps others out until it is over. Gates are made while the library is
/// loaded, and never destroyed.
class ForkGate {
 public:
  explicit ForkGate(LockRank rank);

  /// A thread's stay inside the gate. It counts as a held lock of the gate's rank.
  class Stay {
   public:
    explicit Stay(ForkGate& gate) : gate_(gate) {
      const std::lock_guard turn(gate.turn_);
      gate.inside_.fetch_add(1, std::memory_order_acquire);
    }
    ~Stay() { gate_.inside_.fetch_sub(1, std::memory_order_release); }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    ForkGate& gate_;
  };

 private:
  std::mutex turn_;  // a fork holds it
  std::atomic<int64_t> inside_{0};
};

/// True in a child of fork, and in its children. The threads of every team are gone there.
bool in_forked_child();

}  // namespace weft

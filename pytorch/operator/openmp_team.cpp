#include "operator/openmp_team.h"

#include <ATen/Parallel.h>
#include <omp.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/fork.h"
#include "base/thread_sanitizer.h"

namespace weft::torch_operator {
namespace {

/// The flush-to-zero and rounding mode of the caller, for as long as this lives: OpenMP's workers have modes of their
/// own, and bits must not depend on which thread computed them.
class CallersFloatMode {
 public:
#if defined(__x86_64__)
  using Mode = unsigned;
  static Mode current() { return _mm_getcsr(); }
  explicit CallersFloatMode(Mode mode) : own_(_mm_getcsr()) { _mm_setcsr(mode); }
  ~CallersFloatMode() { _mm_setcsr(own_); }

 private:
  Mode own_;
#else
  struct Mode {};
  static Mode current() { return {}; }
  explicit CallersFloatMode(Mode) {}
#endif
};

}  // namespace

int64_t OpenMpTeam::size() const {
  if (in_forked_child() || at::in_parallel_region()) return 1;
  return at::get_num_threads();
}

/// libgomp is not instrumented. So ThreadSanitizer does not look at how libgomp passes the region's variables, and is
/// told of the order that fork and join establish.
[[gnu::no_sanitize("thread")]] void OpenMpTeam::run(const std::function<void(int64_t, int64_t)>& member) {
  int64_t wanted = size();
  if (wanted <= 1) return member(0, 1);
  auto mode = CallersFloatMode::current();
  char region = 0;
  announce_release(&region);
  // Not at::parallel_for, whose chunks don't tell how many threads the region got.
#pragma omp parallel num_threads(static_cast<int>(wanted))
  {
    CallersFloatMode callers(mode);
    announce_acquire(&region);
    member(omp_get_thread_num(), omp_get_num_threads());
    announce_release(&region);
  }
  announce_acquire(&region);
}

}  // namespace weft::torch_operator

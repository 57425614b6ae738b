#include "operator/openmp_team.h"

#include <ATen/Parallel.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/fork.h"
#include "base/thread_sanitizer.h"

// libgomp's interface to compilers: what g++ makes of `#pragma omp parallel`. Clang makes calls of LLVM's runtime of
// it, which would bring a second team beside PyTorch's.
extern "C" {
// NOLINTNEXTLINE(readability-identifier-naming): libgomp's name
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
}

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

struct Region {
  const std::function<void(int64_t, int64_t)>& member;
  CallersFloatMode::Mode mode;
};

/// libgomp is not instrumented. So ThreadSanitizer does not look at how libgomp passes the region's variables, and is
/// told of the order that fork and join establish.
__attribute__((no_sanitize("thread"))) void run_member(void* data) noexcept {
  auto& region = *static_cast<Region*>(data);
  CallersFloatMode callers(region.mode);
  announce_acquire(&region);
  region.member(omp_get_thread_num(), omp_get_num_threads());
  announce_release(&region);
}

}  // namespace

int64_t OpenMpTeam::size() const {
  if (in_forked_child() || at::in_parallel_region()) return 1;
  return at::get_num_threads();
}

void OpenMpTeam::run(const std::function<void(int64_t, int64_t)>& member) {
  int64_t wanted = size();
  if (wanted <= 1) return member(0, 1);
  Region region{.member = member, .mode = CallersFloatMode::current()};
  announce_release(&region);
  // Not at::parallel_for, whose chunks don't tell how many threads the region got.
  GOMP_parallel(run_member, &region, static_cast<unsigned>(wanted), 0);
  announce_acquire(&region);
}

}  // namespace weft::torch_operator

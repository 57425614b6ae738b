#include "runtime/kernels/scalar_math.h"

#include <cmath>
#include <iterator>

#include "runtime/kernels/panels.h"
#include "runtime/memory/streams.h"
#include "runtime/threads/delay.h"
#include "runtime/threads/team.h"

namespace {

/// x[i] = function(x[i], y[i])
template <typename T, typename Function>
void apply(T* x, const T* y, int64_t n, Function function) {
  for (int64_t i = 0; i < n; ++i) x[i] = function(x[i], y[i]);
}

}  // namespace

extern "C" {
#define WEFT_SCALAR_FUNCTION(name, expression)                                      \
  void weft_##name##_f32(float* x, const float* y, int64_t n) {                     \
    apply(x, y, n, [](float x, [[maybe_unused]] float y) { return expression; });   \
  }                                                                                 \
  void weft_##name##_f64(double* x, const double* y, int64_t n) {                   \
    apply(x, y, n, [](double x, [[maybe_unused]] double y) { return expression; }); \
  }
#include "runtime/kernels/scalar_functions.def"

void weft_barrier(void* barrier) { static_cast<weft::runtime::SpinBarrier*>(barrier)->arrive_and_wait(); }

void weft_delay() { weft::runtime::delay(); }
}

namespace weft::runtime {

const RuntimeSymbol* runtime_symbols(int64_t* count) {
#define WEFT_SYMBOL(name) {#name, reinterpret_cast<void*>(&name)},
#define WEFT_SCALAR_FUNCTION(name, expression) WEFT_SYMBOL(weft_##name##_f32) WEFT_SYMBOL(weft_##name##_f64)
  static const RuntimeSymbol symbols[] = {
#include "runtime/kernels/scalar_functions.def"
      WEFT_SYMBOL(weft_barrier) WEFT_SYMBOL(weft_delay) WEFT_SYMBOL(weft_panels) WEFT_SYMBOL(weft_streams)};
#undef WEFT_SYMBOL
  *count = std::ssize(symbols);
  return symbols;
}

}  // namespace weft::runtime

#include "runtime/scalar_math.h"

#include <cmath>
#include <iterator>

#include "runtime/delay.h"
#include "runtime/team.h"

#define WEFT_SCALAR_FUNCTION(name, expression)                    \
  void weft_##name##_f32(float* x, const float* y, int64_t n) {   \
    for (int64_t i = 0; i < n; ++i) x[i] = expression;            \
  }                                                               \
  void weft_##name##_f64(double* x, const double* y, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) x[i] = expression;            \
  }

extern "C" {
WEFT_SCALAR_FUNCTION(log, std::log(x[i]))
WEFT_SCALAR_FUNCTION(log2, std::log2(x[i]))
WEFT_SCALAR_FUNCTION(log10, std::log10(x[i]))
WEFT_SCALAR_FUNCTION(log1p, std::log1p(x[i]))
WEFT_SCALAR_FUNCTION(sin, std::sin(x[i]))
WEFT_SCALAR_FUNCTION(cos, std::cos(x[i]))
WEFT_SCALAR_FUNCTION(erf, std::erf(x[i]))
WEFT_SCALAR_FUNCTION(erfc, std::erfc(x[i]))
WEFT_SCALAR_FUNCTION(rem, std::fmod(x[i], y[i]))
WEFT_SCALAR_FUNCTION(pow, std::pow(x[i], y[i]))
WEFT_SCALAR_FUNCTION(atan2, std::atan2(x[i], y[i]))

void weft_barrier(void* barrier) { static_cast<weft::runtime::SpinBarrier*>(barrier)->arrive_and_wait(); }

void weft_delay() { weft::runtime::delay(); }
}
#undef WEFT_SCALAR_FUNCTION

namespace weft::runtime {

const RuntimeSymbol* runtime_symbols(int64_t* count) {
#define WEFT_SYMBOL(name) {#name, reinterpret_cast<void*>(&name)}
#define WEFT_SYMBOLS(name) WEFT_SYMBOL(weft_##name##_f32), WEFT_SYMBOL(weft_##name##_f64)
  static const RuntimeSymbol symbols[] = {
      WEFT_SYMBOLS(log),   WEFT_SYMBOLS(log2),        WEFT_SYMBOLS(log10),     WEFT_SYMBOLS(log1p), WEFT_SYMBOLS(sin),
      WEFT_SYMBOLS(cos),   WEFT_SYMBOLS(erf),         WEFT_SYMBOLS(erfc),      WEFT_SYMBOLS(rem),   WEFT_SYMBOLS(pow),
      WEFT_SYMBOLS(atan2), WEFT_SYMBOL(weft_barrier), WEFT_SYMBOL(weft_delay),
  };
#undef WEFT_SYMBOLS
#undef WEFT_SYMBOL
  *count = std::ssize(symbols);
  return symbols;
}

}  // namespace weft::runtime

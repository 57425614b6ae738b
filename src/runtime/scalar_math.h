#pragma once

#include <cstdint>

/// Functions that have no inline machine code. They work in place on x[0..n), an element at a time, by the C library.
/// `y` is the second operand if there are two, else x again.
extern "C" {
#define WEFT_SCALAR_FUNCTION(name)                             \
  void weft_##name##_f32(float* x, const float* y, int64_t n); \
  void weft_##name##_f64(double* x, const double* y, int64_t n);
WEFT_SCALAR_FUNCTION(log)
WEFT_SCALAR_FUNCTION(log2)
WEFT_SCALAR_FUNCTION(log10)
WEFT_SCALAR_FUNCTION(log1p)
WEFT_SCALAR_FUNCTION(sin)
WEFT_SCALAR_FUNCTION(cos)
WEFT_SCALAR_FUNCTION(erf)
WEFT_SCALAR_FUNCTION(erfc)
WEFT_SCALAR_FUNCTION(rem)
WEFT_SCALAR_FUNCTION(pow)
WEFT_SCALAR_FUNCTION(atan2)
#undef WEFT_SCALAR_FUNCTION

/// Waits on a runtime::SpinBarrier.
void weft_barrier(void* barrier);
/// runtime/delay.h.
void weft_delay();
}

namespace weft::runtime {

/// A function of the runtime that machine code may call, and its name there.
struct RuntimeSymbol {
  const char* name;
  void* address;
};

/// All of them but the micro-kernels.
const RuntimeSymbol* runtime_symbols(int64_t* count);

}  // namespace weft::runtime

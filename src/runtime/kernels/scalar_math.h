#pragma once

#include <cstdint>

/// The functions of scalar_functions.def, in place on x[0..n). `y` is the second operand if there are two, else x
/// again.
extern "C" {
#define WEFT_SCALAR_FUNCTION(name, expression)                 \
  void weft_##name##_f32(float* x, const float* y, int64_t n); \
  void weft_##name##_f64(double* x, const double* y, int64_t n);
#include "runtime/kernels/scalar_functions.def"

/// Waits on a runtime::SpinBarrier.
void weft_barrier(void* barrier);
/// See runtime/threads/delay.h.
void weft_delay();
}

namespace weft::runtime {

/// A function of the runtime that machine code may call, and its symbol.
struct RuntimeSymbol {
  const char* name;
  void* address;
};

/// All functions that machine code may call, except micro-kernels.
const RuntimeSymbol* runtime_symbols(int64_t* count);

}  // namespace weft::runtime

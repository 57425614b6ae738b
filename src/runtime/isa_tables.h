#pragma once

#include "runtime/kernels.h"

namespace weft::runtime {

extern const DTypeKernels kGenericF32, kGenericF64;
#if defined(__x86_64__)
extern const DTypeKernels kAvx2F32, kAvx2F64;
extern const DTypeKernels kAvx512F32, kAvx512F64;
#endif

}  // namespace weft::runtime

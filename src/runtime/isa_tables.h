#pragma once

#include "runtime/kernels.h"

namespace weft::runtime {

extern const DTypeKernels kGenericF32, kGenericF64;
extern const PairKernels kGenericPairs;
#if defined(__x86_64__)
extern const DTypeKernels kAvx2F32, kAvx2F64;
extern const DTypeKernels kAvx512F32, kAvx512F64;
extern const PairKernels kAvx2Pairs, kAvx512Pairs, kAvx512Bf16Pairs;
#endif

}  // namespace weft::runtime

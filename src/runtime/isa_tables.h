#pragma once

#include "runtime/kernels.h"

namespace weft::runtime {

extern const DTypeKernels kGenericF32, kGenericF64;
extern const F16Kernels kGenericF16;
extern const PairKernels kGenericPairs, kEmulatedAmxPairs;
extern const FoldKernels kGenericFolds;
extern const ByteRowsKernels kGenericByteRows;
bool has_emulated_tiles();  ///< whether this thread's emulated tiles are in use
#if defined(__x86_64__)
extern const DTypeKernels kAvx2F32, kAvx2F64;
extern const DTypeKernels kAvx512F32, kAvx512F64;
extern const F16Kernels kAvx2F16, kAvx512F16;
extern const PairKernels kAvx2Pairs, kAvx512Pairs, kAvx512Bf16Pairs, kAmxPairs;
extern const FoldKernels kAvx2Folds, kAvx512Folds;
extern const ByteRowsKernels kAvx2ByteRows, kAvx512ByteRows, kAvx512VnniByteRows;
#endif

}  // namespace weft::runtime

#pragma once

#include "runtime/kernels/kernels.h"

namespace weft::runtime {

extern const DTypeKernels kGenericF32, kGenericF64;
extern const WidenedKernels kGenericF16, kGenericI8;
extern const F16OuterKernels kGenericF16Outer;
extern const PairKernels kGenericPairs, kEmulatedAmxPairs;
extern const FoldKernels kGenericFolds;
extern const ByteRowsKernels kGenericByteRows;
bool has_emulated_tiles();  ///< whether this thread's emulated tiles are in use
#if defined(__x86_64__)
extern const DTypeKernels kAvx2F32, kAvx2F64;
extern const DTypeKernels kAvx512F32, kAvx512F64;
extern const WidenedKernels kAvx2F16, kAvx2I8, kAvx512F16, kAvx512I8;
extern const F16OuterKernels kAvx2F16Outer, kAvx512F16Outer;
extern const PairKernels kAvx2Pairs, kAvx512Pairs, kAvx512Bf16Pairs, kAmxPairs;
extern const FoldKernels kAvx2Folds, kAvx512Folds;
extern const ByteRowsKernels kAvx2ByteRows, kAvx512ByteRows, kAvx512VnniByteRows;
#endif

}  // namespace weft::runtime

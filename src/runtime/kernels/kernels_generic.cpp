// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/pair_table.h"
#include "runtime/simd/table.h"

namespace weft::runtime {

constinit const DTypeKernels kGenericF32 = kernel_table<float>();
constinit const DTypeKernels kGenericF64 = kernel_table<double>();
constinit const WidenedKernels kGenericF16 = widened_table<F16>();
constinit const WidenedKernels kGenericI8 = widened_table<I8>();
constinit const F16OuterKernels kGenericF16Outer = f16_outer_table();
constinit const PairKernels kGenericPairs = pair_table();
constinit const FoldKernels kGenericFolds = fold_table();
constinit const ByteRowsKernels kGenericByteRows = byte_rows_table();

}  // namespace weft::runtime

// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#if defined(__x86_64__)
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/pair_table.h"
#include "runtime/simd/table.h"

namespace weft::runtime {

constinit const DTypeKernels kAvx2F32 = kernel_table<float>();
constinit const DTypeKernels kAvx2F64 = kernel_table<double>();
constinit const WidenedKernels kAvx2F16 = widened_table<F16>();
constinit const WidenedKernels kAvx2I8 = widened_table<I8>();
constinit const F16OuterKernels kAvx2F16Outer = f16_outer_table();
constinit const PairKernels kAvx2Pairs = pair_table();
constinit const FoldKernels kAvx2Folds = fold_table();
constinit const ByteRowsKernels kAvx2ByteRows = byte_rows_table();

}  // namespace weft::runtime
#endif

// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#if defined(__x86_64__)
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/pair_table.h"
#include "runtime/simd/table.h"

namespace weft::runtime {

constinit const DTypeKernels kAvx512F32 = kernel_table<float>();
constinit const DTypeKernels kAvx512F64 = kernel_table<double>();
constinit const WidenedKernels kAvx512F16 = widened_table<F16>();
constinit const WidenedKernels kAvx512I8 = widened_table<I8>();
constinit const F16OuterKernels kAvx512F16Outer = f16_outer_table();
constinit const PairKernels kAvx512Pairs = pair_table();
constinit const FoldKernels kAvx512Folds = fold_table();
constinit const ByteRowsKernels kAvx512ByteRows = byte_rows_table();

}  // namespace weft::runtime
#endif

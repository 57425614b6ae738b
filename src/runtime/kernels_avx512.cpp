// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#if defined(__x86_64__)
#include "runtime/isa_tables.h"
#include "runtime/simd/byte_rows.h"
#include "runtime/simd/pair_table.h"
#include "runtime/simd/table.h"

namespace weft::runtime {

constinit const DTypeKernels kAvx512F32 = kernel_table<float>();
constinit const DTypeKernels kAvx512F64 = kernel_table<double>();
constinit const F16Kernels kAvx512F16 = f16_table();
constinit const PairKernels kAvx512Pairs = pair_table();
constinit const FoldKernels kAvx512Folds = fold_table();
constinit const ByteRowsKernels kAvx512ByteRows = byte_rows_table();

}  // namespace weft::runtime
#endif

// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#if defined(__x86_64__)
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/byte_rows.h"

namespace weft::runtime {

constinit const ByteRowsKernels kAvx512VnniByteRows = byte_rows_table();

}  // namespace weft::runtime
#endif

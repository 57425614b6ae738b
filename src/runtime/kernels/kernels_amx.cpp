// Compiled with the flags of its instruction set (src/CMakeLists.txt).
#if defined(__x86_64__)
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/amx_pairs.h"
#include "runtime/simd/amx_unit.h"
#include "runtime/simd/pair_table.h"

namespace weft::runtime {

constinit const PairKernels kAmxPairs = half_table<TileHalves<AmxUnit, kAvx512Bf16Pairs>, kAvx512Pairs>();

}  // namespace weft::runtime
#endif

// The kernels of kernels_amx.cpp for tests on any processor.
#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/amx_pairs.h"
#include "runtime/simd/emulated_amx_unit.h"
#include "runtime/simd/pair_table.h"

namespace weft::runtime {

constinit const PairKernels kEmulatedAmxPairs = half_table<TileHalves<EmulatedAmxUnit, kGenericPairs>, kGenericPairs>();

bool has_emulated_tiles() { return EmulatedAmxUnit::is_configured(); }

}  // namespace weft::runtime

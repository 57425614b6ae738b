#pragma once

#include "ir/program.h"

namespace weft::passes {

/// True iff every step of the scan works on the rows of dim 0 separately: each carry, x slice and value computed in the
/// region has the same leading dim, and no op mixes its rows. Such a scan is split over the batch, each thread running
/// all steps of its rows without waiting for another.
bool is_batched(const ir::Program& program, const ir::Op& scan);

}  // namespace weft::passes

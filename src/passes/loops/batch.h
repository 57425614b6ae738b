#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Whether the op, in the region of a ragged scan, gives the same rows on the first rows of its operands as on all
/// rows, row i being a function of row i of those operands that have rows. False too for what sums over rows. An op on
/// no rows at all keeps them.
bool keeps_rows(const ir::Program& program, const ir::Op& op, const ir::Ragged& ragged);

/// True iff every step of the scan works on the rows of dim 0 separately: each carry, x slice and value computed in the
/// region has the same leading dim, and no op mixes its rows. Such a scan is split over the batch, each thread running
/// all steps of its rows without waiting for another.
bool is_batched(const ir::Program& program, const ir::Op& scan);

/// True iff the step does nothing but elementwise ops on values of one shape, whose dims but the first hold few
/// elements (fewer than a vector): its rows are too short to be worth one at a time.
bool has_short_rows(const ir::Program& program, const ir::Op& scan);

}  // namespace weft::passes

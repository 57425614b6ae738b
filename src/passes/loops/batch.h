#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Row independence in the region of a ragged scan: whether row i of the op's result depends on row i only of the
/// operands that have rows. Then the op does the same on the first rows of its operands as on all. False for an op that
/// sums over rows, true for an op without any.
bool keeps_rows(const ir::Program& program, const ir::Op& op, const ir::Ragged& ragged);

/// True iff every step of the scan works on the rows of dim 0 separately: each carry, x slice and value computed in the
/// region has the same leading dim, and no op mixes its rows. Such a scan is split over the batch, each thread running
/// all steps of its rows without waiting for another.
bool is_batched(const ir::Program& program, const ir::Op& scan);

/// True iff the step has only elementwise ops on values of one shape whose rows are shorter than a vector of `lanes`
/// elements. Such rows are not worth doing one at a time.
bool has_short_rows(const ir::Program& program, const ir::Op& scan, int64_t lanes);

}  // namespace weft::passes

#pragma once

#include <optional>

#include "importer/aten_ops.h"

namespace weft::importer {

/// The start s of an index that names the rows s, s+1, ...: an index of a single number, or the sum of a number and 0,
/// 1, ... None for other indices, and where the index may be empty: a start is checked, and an empty index isn't.
std::optional<ir::ValueId> range_start(const AtenCall& call, ir::ValueId index);

/// `count` rows of x along a dim, from a start on.
ir::ValueId rows_at(const AtenCall& call, ir::ValueId x, int64_t dim, ir::ValueId start, const ir::Dim& count);

/// x with its rows along a dim, from a start on, replaced by the rows of an update.
ir::ValueId with_rows_at(const AtenCall& call, ir::ValueId x, int64_t dim, ir::ValueId start, ir::ValueId update);

}  // namespace weft::importer

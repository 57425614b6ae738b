#pragma once

#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace weft::runtime {

/// The plan as text, a line a buffer and a stage, complete: read_plan gives an equal plan, on any machine. Fields with
/// their default value are left out. For instance a stage:
///
///     {kind: rows, symbol: "stage_0", rows: 8*s0, row_block: 6, column_shares: 4}
///
/// A size is a factor times values by their index, symbols before derived ones (`8*s0`).
std::string write_plan(const Plan& plan);

/// User's error naming the line where the text is no plan. Doesn't check that the buffers and stages that the text
/// names exist: a plan is as trusted as machine code.
Plan read_plan(std::string_view text);

}  // namespace weft::runtime

#pragma once

#include "codegen/schedule.h"

namespace weft::codegen {

/// Fills schedule.plan, from the stages of schedule.body: a buffer for everything stored, and the stages' descriptions.
/// The stages of loops, which are scheduled here, are numbered where they run: a buffer that a loop's own stages use
/// lives between some of these, one from around the loop that is read in it until the loop's last stage.
void make_plan(Schedule& schedule, const TileRows& tile_rows);

}  // namespace weft::codegen

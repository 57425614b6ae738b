#pragma once

#include "planning/schedule.h"

namespace weft::planning {

/// Fills schedule.plan, from the stages of schedule.body: a buffer for everything stored, and the stages' descriptions.
/// The stages within stages (of loops, branches), which are scheduled here, are numbered where they run: a buffer that
/// only these use lives between some of them, one from around the stage that is read in it until its last.
void make_plan(Schedule& schedule, const TileRows& tile_rows);

}  // namespace weft::planning

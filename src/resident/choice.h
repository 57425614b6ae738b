#pragma once

#include <string>

#include "packages/step_model.h"

namespace weft::resident {

/// Why the engine should run a step, and not a package's machine code, though that may have a form of it; empty if the
/// machine code should. What decides is the step alone, not the machine or its threads.
std::string why_engine(const packages::StepModel& model);

}  // namespace weft::resident

#pragma once

#include <string>

#include "packages/step_model.h"

namespace weft::resident {

/// Why the engine should run a step, even if a package's machine code could run it; empty if the machine code should.
/// The reason depends on the step alone, not on the machine or its threads.
std::string why_engine(const packages::StepModel& model);

}  // namespace weft::resident

#pragma once

#include <cstdint>
#include <vector>

#include "packages/plan/tasks.h"

namespace weft::packages {

/// Nests of a call of several steps that are run for all steps before other nests follow. Either one nest, or several
/// nests that run step by step, since they compute a state that the next step reads.
struct Stretch {
  std::vector<size_t> tasks;  ///< in the order in which they run
  bool step_by_step = false;
};

/// The nests of a step, and how calls of several steps run them.
struct Plan {
  Tasks tasks;
  int64_t steps = 1;               ///< of a call of several steps; 1: there is none
  std::vector<Stretch> stretches;  ///< of such a call
};

/// Plans calls of one step and, where they are faster, calls of `steps` steps. Calls of several steps gain nothing if
/// `steps` is 1, or if most products depend on results of the step before. They are also left out if a step may fail,
/// since the state must then be as it was before that step.
Plan plan_of(const Bound& step, int64_t steps);

}  // namespace weft::packages

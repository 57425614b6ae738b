#pragma once

#include "verify/changes.h"
#include "verify/diagnose.h"

namespace weft::verify {

/// Tries all sets of `count` known changes of the scope: one, two or three. Sets of two and three are tried within a
/// budget of work, three in the order of the catalogue. `share`: of that budget, where several scopes are searched for
/// one answer.
Diagnosis search(const Problem& problem, const Scope& scope, int count, const Poll& poll, double share);

}  // namespace weft::verify

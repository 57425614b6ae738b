#pragma once

#include <functional>
#include <optional>
#include <string>

#include "verify/diagnosis/changes.h"
#include "verify/step.h"

namespace weft::verify {

/// A change that contains a number.
struct Dial {
  std::string name;
  std::function<std::string(double)> detail;
  std::function<void(Problem&, double)> turn;
  double lowest, highest;
  bool by_factors;  // whether numbers are tried at equal factors or at equal distances
};

/// Finds the number from the recording: a root of the largest difference in the first step that differs. With it the
/// whole recording must agree. A round number is preferred if it makes the recording agree too.
///
/// Returns: nothing where no number in the dial's range does it, or the input and h of the layer that differs aren't
/// known.
///
/// cache: products of earlier steps; the work is counted in it.
std::optional<Change> solved(const Problem& problem, const Dial& dial, ProductCache& cache);

}  // namespace weft::verify
